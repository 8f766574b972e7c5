"""Runs and their histories."""

from __future__ import annotations

from typing import Any

from pledger.engine.port.answers import Answer, Existing, Reply, Started, began, decide_start
from pledger.engine.port.operations import Append, Block, ConfirmClaim, Release, StartRun, Terminate
from pledger.engine.port.records import START_ID
from pledger.store.postgres.found import Found, Needs, Run
from pledger.store.postgres.rules import families, labels, streams, tasks
from pledger.store.postgres.writes import Writes, closing_row

# Starts ---------------------------------------------------------------------------------------------------------------


def needs_of_start(op: StartRun, needs: Needs) -> None:
    needs.starts.append((op.namespace, op.workflow_id))
    if op.owner is not None:
        needs.sessions.add(op.owner)
    if op.first is not None and op.first.posts:
        families.needs_of_posts(op.first.posts, needs)


def start_run(op: StartRun, found: Found, writes: Writes) -> Answer:
    generation, first_type, earlier = found.newest.get((op.namespace, op.workflow_id), (0, None, None))
    if earlier is not None:
        if (own := began(earlier, op)) is not None:
            return own
        decision = decide_start(earlier, op, first_type)
        if decision != "start":
            return Existing(earlier, decision)
    if op.owner is not None and op.owner not in found.sessions:
        return Reply.LOST
    chain_key, run_key = found.keys.pop()
    writes.add("insert_chains", chain_key, op.namespace, op.workflow_id, generation + 1)
    place = (run_key, chain_key, op.namespace, op.run_id, op.workflow_type, op.task_queue)
    if op.owner is None:
        state: tuple[Any, ...] = ("running", None, 0, bytes(8), 0, None, 0, None)
        message = ("start", START_ID, "", op.started, op.started_ms, False)
        writes.add("insert_messages", chain_key, *message)
        if (sent := op.beside) is not None:
            beside = ("signal", sent.message_id, sent.name, sent.body, op.started_ms, sent.keep_id)
            writes.add("insert_messages", chain_key, *beside)
        writes.queue_has_work(op.namespace, op.task_queue)
    elif op.first is None:
        state = ("running", None, 0, bytes(8), 1, op.owner, None, 0)
    else:
        state = _born(op.first, op.owner, (chain_key, run_key), found, writes)
        _succeed(op.first, op.namespace, writes)
    writes.add("insert_runs", *place, op.input_digest, op.started_ms, op.answers_for, op.deadline_ms, *state)
    changed = ((), None) if op.first is None else (op.first.attributes, op.first.memo)
    labels.start(run_key, op.namespace, (op.attributes, op.memo), changed, writes)
    if op.first is not None:
        labels.write_terms(op.first, writes)
    return Started(run_key, chain_key)


def _born(first: Append, owner: int, keys: tuple[int, int], found: Found, writes: Writes) -> tuple[Any, ...]:
    """The state of a run whose first transition is written with its start. keys: of its chain, and its own."""
    chain_key, first.run_key = keys
    first.fence, first.expected_event = 1, 0
    _add_transition(first, writes)
    _record(first, chain_key, found, writes)
    head = first.transition.checksum
    if first.closed is None:
        return ("running", None, first.last_event, head, 1, owner, None, first.due_ms)
    writes.has_closed()
    return (first.closed, first.time_ms, first.last_event, head, 2, None, None, None)


# Steps ----------------------------------------------------------------------------------------------------------------


def needs_of_append(op: Append, needs: Needs) -> None:
    needs.runs.add(op.run_key)
    if op.closed is not None:
        needs.closed.add(op.run_key)
    for task in op.tasks:
        # Of an activity that this very transition schedules there is no row yet.
        if task.event_id < op.transition.first_event_id:
            needs.tasks.add((op.run_key, task.event_id))
    for task in op.unwritten:
        needs.tasks.add((op.run_key, task.event_id))
    for event_id in (*op.dropped, *op.cancelled):
        needs.tasks.add((op.run_key, event_id))
    if op.posts or op.parent is not None:
        families.needs_of(op, needs)


def append(op: Append, found: Found, writes: Writes) -> Answer:
    run = _held(found, op.run_key, op.fence)
    transition = op.transition
    if run is None or run.last_event != op.expected_event:
        return Reply.WON if _is_newest(found, op) else Reply.LOST
    if op.closed is None:
        writes.add("step_runs", op.run_key, op.last_event, transition.checksum, op.due_ms)
        _add_transition(op, writes)
    else:
        writes.add("close_runs", *closing_row(op))
        writes.has_closed()
        _succeed(op, run.namespace, writes)
        families.part(op, found, writes, has_dependants=op.has_dependants)
    _record(op, run.chain_key, found, writes)
    labels.write(op.run_key, run.namespace, op.attributes, op.memo, writes)
    labels.write_terms(op, writes)
    return Reply.WON


def _succeed(op: Append, namespace: str, writes: Writes) -> None:
    """The next segment of the chain, if there is one: ownerless and due."""
    successor = op.successor
    if successor is not None:
        named = (successor.run_id, successor.workflow_type, successor.task_queue)
        first = (successor.started, op.time_ms, successor.name, successor.deadline_ms)
        writes.add("insert_successors", op.run_key, *named, *first)
        for statement in ("hand_on_attributes", "hand_on_memos"):
            writes.add(statement, op.run_key)
        writes.queue_has_work(namespace, successor.task_queue)


def _is_newest(found: Found, op: Append) -> bool:
    """Whether the transition is there already, and the newest: its checksum covers its place, its content and all
    before it. One that closed the run has raised the fence by one."""
    run = found.runs.get(op.run_key)
    closed = op.closed is not None
    return (
        run is not None
        and (run.fence, run.head) == (op.fence + closed, op.transition.checksum)
        and (run.owner is None) == closed
    )


def _record(op: Append, chain_key: int, found: Found, writes: Writes) -> None:
    """What changes beside the run's own row and its history."""
    run_key = op.run_key
    for message_key, event_id in op.consumed:
        writes.forgotten.append(message_key)
        writes.add("deliver_messages", message_key, event_id)
    tasks.put_unwritten(run_key, op.unwritten, found, writes)
    for task in op.tasks:
        tasks.put(run_key, task, writes)
    for event_id in op.dropped:
        writes.add("drop_tasks", run_key, event_id)
        run = found.runs.get(run_key)
        if run is not None:
            tasks.ended(found.tasks.get((run_key, event_id)), run.namespace, writes)
    for event_id in op.cancelled:
        writes.add("cancel_tasks", run_key, event_id)
    tasks.log(op.attempts, writes, run_key)
    if op.posts:
        families.send_all(op, chain_key, found, writes, start_run)
    if op.published:
        streams.extend(op, chain_key, writes)


# Letting go -----------------------------------------------------------------------------------------------------------


def needs_of_release(op: Release, needs: Needs) -> None:
    needs.runs.add(op.run_key)
    needs.released.add(op.run_key)
    for task in op.tasks:
        needs.tasks.add((op.run_key, task.event_id))


def release(op: Release, found: Found, writes: Writes) -> Answer:
    run = _held(found, op.run_key, op.fence)
    if run is None:
        return Reply.LOST
    for task in op.tasks:
        tasks.put(op.run_key, task, writes)
    has_outcome = any(task.state == "done" for task in op.tasks)
    due_ms = 0 if has_outcome or op.run_key in found.with_mail else op.due_ms
    _change(run._replace(owner=None, fence=run.fence + 1), writes, due_ms=due_ms)
    writes.let_go.append(op.run_key)
    if due_ms is not None:
        writes.queue_has_work(run.namespace, run.task_queue)
    return Reply.WON


def needs_of_block(op: Block, needs: Needs) -> None:
    needs.runs.add(op.run_key)
    for task in op.tasks:
        needs.tasks.add((op.run_key, task.event_id))


def block(op: Block, found: Found, writes: Writes) -> Answer:
    """Due at once, for code that may do better: what the run waited for may have been what its code failed on."""
    run = _held(found, op.run_key, op.fence)
    if run is None:
        return Reply.LOST
    for task in op.tasks:
        tasks.put(op.run_key, task, writes)
    changed = run._replace(owner=None, fence=run.fence + 1, claims=0)
    _change(changed, writes, due_ms=0, blocked=op.reason, blocked_code=op.code)
    writes.tried.append((op.run_key, op.code))
    writes.let_go.append(op.run_key)
    return Reply.WON


def needs_of_confirm(op: ConfirmClaim, needs: Needs) -> None:
    needs.runs.add(op.run_key)


def confirm_claim(op: ConfirmClaim, found: Found, writes: Writes) -> Answer:
    run = _held(found, op.run_key, op.fence)
    if run is None:
        return Reply.LOST
    if run.claims:
        _change(run._replace(claims=0), writes)
    return Reply.WON


def needs_of_terminate(op: Terminate, needs: Needs) -> None:
    needs.runs.add(op.run_key)
    needs.closed.add(op.run_key)
    families.needs_of(op, needs)


def terminate(op: Terminate, found: Found, writes: Writes) -> Answer:
    run = found.runs.get(op.run_key)
    if run is None or run.status != "running":
        return Reply.LOST
    if (run.last_event, run.head) != (op.expected_event, op.expected_head):
        return Reply.LOST
    transition = op.transition
    place = (op.run_key, run.fence, op.expected_event, op.last_event, transition.first_event_id)
    writes.add("close_runs", *place, transition.body, transition.checksum, op.status, op.time_ms, False)  # noqa: FBT003
    writes.has_closed()
    families.part(op, found, writes, has_dependants=True)
    return Reply.WON


# Parts ----------------------------------------------------------------------------------------------------------------


def _held(found: Found, run_key: int, fence: int) -> Run | None:
    run = found.runs.get(run_key)
    return run if run is not None and run.fence == fence and run.owner is not None else None


def _add_transition(op: Append, writes: Writes) -> None:
    transition = op.transition
    writes.add("insert_transitions", op.run_key, transition.first_event_id, transition.body, transition.checksum)


def _change(
    run: Run,
    writes: Writes,
    *,
    due_ms: int | None = None,
    blocked: bytes | None = None,
    blocked_code: str | None = None,
) -> None:
    """due_ms: of a run that nobody owns any more."""
    writes.add(
        "change_runs",
        run.run_key,
        run.fence,
        run.owner,
        due_ms,
        None if run.owner is None else run.next_ms,
        run.claims,
        blocked,
        blocked_code,
    )
