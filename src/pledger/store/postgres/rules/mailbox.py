"""Messages accepted for a chain and not yet in its history, and the wake-ups that they cause."""

from __future__ import annotations

from pledger.engine.port.answers import Answer, Reply, Sent
from pledger.engine.port.operations import Send
from pledger.errors import WorkflowNotFoundError
from pledger.store.postgres.found import Found, Needs, Run
from pledger.store.postgres.writes import Writes


def needs_of_send(op: Send, needs: Needs) -> None:
    needs.addressees.add(op.run_key)
    needs.sessions.update(op.local)
    needs.messages.append((op.run_key, op.message_id))
    needs.room = max(needs.room, op.room)


def send(op: Send, found: Found, writes: Writes) -> Answer:
    run = found.addressees.get(op.run_key)
    if run is None:
        raise unknown_run(op.run_key)
    known = (run.chain_key, op.message_id) in found.known
    if run.status != "running":
        # A sender that repeats a message whose reply it lost must learn that it had been accepted.
        return Reply.DUPLICATE if known else Reply.CLOSED
    if known:
        return Reply.DUPLICATE
    length = found.lengths[run.chain_key]
    if length >= op.room:
        return Reply.FULL
    found.lengths[run.chain_key] = length + 1
    # The sender of a cancel asks for its verdict by id, whatever the id is.
    keep_id = op.keep_id or op.kind == "cancel"
    message = (run.chain_key, op.kind, op.message_id, op.name, op.body, op.sent_ms, keep_id)
    writes.add("insert_messages", *message)
    # No burial comes between now and the commit: the sender's own process still holds the run then.
    is_another = run.run_key != op.run_key
    if run.owner is None or is_another or run.owner not in op.local or run.owner not in found.sessions:
        wake(run, found, writes)
    return Sent(run.owner, run.run_key if is_another else None)


def wake(run: Run, found: Found, writes: Writes) -> None:
    """Something arrived for a run: a worker claims it, or its owner is told by `woken_runs`."""
    locked = found.runs.get(run.run_key)
    writes.wake(run, owned=locked is None or locked.owner is not None)


def unknown_run(run_key: int) -> WorkflowNotFoundError:
    return WorkflowNotFoundError(f"No run has the key {run_key}. Was it deleted by retention?")
