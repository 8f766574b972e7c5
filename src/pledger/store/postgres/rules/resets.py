"""Runs that go on from a part of another one's history."""

from __future__ import annotations

from pledger.engine.port.answers import Answer, Reply, Started
from pledger.engine.port.operations import ResetRun
from pledger.engine.port.records import RESET_NAME, START_ID, RunRow
from pledger.store.postgres.found import Found, Needs, Run
from pledger.store.postgres.rules import labels, tasks
from pledger.store.postgres.writes import Writes


def needs_of_reset(op: ResetRun, needs: Needs) -> None:
    needs.starts.append((op.namespace, op.workflow_id))
    needs.runs |= {op.base_key, op.newest_key}
    needs.closed.add(op.newest_key)  # the chain is locked: nobody sends anything meanwhile


def reset_run(op: ResetRun, found: Found, writes: Writes) -> Answer:
    *_, newest = found.newest.get((op.namespace, op.workflow_id), (0, None))
    _, run_key = found.keys.pop()
    if newest is not None and newest.run_id == op.run_id:
        return Started(newest.run_key, newest.chain_key)  # repeated, since its answer was lost
    base, last = found.runs.get(op.base_key), found.runs.get(op.newest_key)
    if base is None or last is None or newest is None or not _are_as_read(op, base, last, newest):
        return Reply.LOST
    chain_key = base.chain_key
    if op.closing is not None:
        closing = op.closing
        writes.add("outlive_runs", last.run_key, op.newest_event + 1, closing.checksum, op.time_ms)
        writes.add("insert_transitions", last.run_key, closing.first_event_id, closing.body, closing.checksum)
        writes.let_go.append(last.run_key)
        writes.partings.append(last.run_key)
        writes.has_closed()
        writes.slots_are_free(op.namespace)
    writes.add("renew_chains", chain_key)
    terms = (op.answers_for, op.deadline_ms)
    writes.add("insert_segments", run_key, op.base_key, op.run_id, op.time_ms, op.kept, op.head, *terms)
    labels.write(run_key, op.namespace, op.attributes, op.memo, writes, is_new=True)
    labels.begin_phases(run_key, op.phases, writes)
    writes.add("copy_histories", run_key, op.base_key, op.kept)
    writes.add("copy_uses", run_key, op.base_key)
    writes.add("hand_on_pauses", run_key, op.newest_key, op.run_id)
    writes.add("hand_on_losses", run_key, op.base_key)
    writes.add("drop_starts", chain_key, START_ID)
    if op.revive:
        writes.add("revive_signals", chain_key)
    writes.add("insert_messages", chain_key, "start", START_ID, RESET_NAME, op.inputs, op.time_ms, False)  # noqa: FBT003
    for task in op.tasks:
        tasks.put(run_key, task, writes)
    link = (op.base_run_id, op.event_id, op.kept, op.how, op.reason, op.by, op.time_ms)
    writes.add("insert_resets", run_key, op.run_id, op.base_key, *link)
    writes.queue_has_work(op.namespace, base.task_queue)
    return Started(run_key, chain_key)


def _are_as_read(op: ResetRun, base: Run, last: Run, newest: RunRow) -> bool:
    """newest: as of before the rows were locked; another one may have come since, but not in this chain."""
    return (
        newest.run_key == last.run_key
        and last.chain_key == base.chain_key
        and (base.last_event, base.head) == (op.base_event, op.base_head)
        and (last.last_event, last.head) == (op.newest_event, op.newest_head)
        and (last.status == "running") == (op.closing is not None)
    )
