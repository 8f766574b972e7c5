"""Runs that go on from a part of another one's history."""

from __future__ import annotations

from msgspec.structs import replace

from pledger.engine.port.answers import Answer, Reply, Started
from pledger.engine.port.operations import ResetRun
from pledger.engine.port.records import RESET_NAME, START_ID, Message, ResetRow, RunRow
from pledger.store.memory import families, labels, ledger, mailbox, pauses, tasks
from pledger.store.memory.state import State


def reset_run(state: State, op: ResetRun) -> Answer:
    newest = ledger.find_run(state, op.namespace, op.workflow_id)
    if newest is not None and newest.run_id == op.run_id:
        return Started(newest.run_key, newest.chain_key)  # repeated, since its answer was lost
    base = state.runs.get(op.base_key)
    if newest is None or base is None or not _are_as_read(op, base, newest):
        return Reply.LOST
    if op.closing is not None:
        state.histories[newest.run_key].append(op.closing)
        ended = replace(newest, last_event=op.newest_event + 1, head=op.closing.checksum)
        families.part(state, ended, None, op.time_ms, has_dependants=True)
        state.end_run(ended, "terminated", op.time_ms)
    run_key, chain_key = next(state.keys), base.chain_key
    state.runs[run_key] = replace(
        base,
        run_key=run_key,
        run_id=op.run_id,
        status="running",
        started_ms=op.time_ms,
        closed_ms=None,
        last_event=op.kept,
        head=op.head,
        fence=0,
        owner=None,
        due_ms=0,
        claims=0,
        blocked=None,
        blocked_code=None,
    )
    state.open_runs.add(run_key)
    state.newest[op.namespace, op.workflow_id].append(run_key)
    if op.base_key in state.piece_uses:
        state.piece_uses[run_key] = set(state.piece_uses[op.base_key])
    state.terms[run_key] = op.answers_for, op.deadline_ms
    labels.write(state, run_key, op.attributes, op.memo)
    if op.phases:
        state.phases[run_key] = {each.event_id: each for each in op.phases}
    state.histories[run_key] = [each for each in state.histories[op.base_key] if each.first_event_id <= op.kept]
    _place_messages(state, op, chain_key)
    pauses.hand_on(state, op.newest_key, run_key, op.run_id)
    ledger.hand_on_doubts(state, op.base_key, run_key)
    tasks.change_tasks(state, run_key, op.tasks, (), ())
    place = (run_key, op.run_id, op.base_key, op.base_run_id, op.event_id, op.kept)
    state.resets[run_key] = ResetRow(*place, op.how, op.reason, op.by, op.time_ms)
    state.news = True
    return Started(run_key, chain_key)


def _are_as_read(op: ResetRun, base: RunRow, newest: RunRow) -> bool:
    return (
        (base.last_event, base.head) == (op.base_event, op.base_head)
        and (newest.run_key, newest.last_event, newest.head) == (op.newest_key, op.newest_event, op.newest_head)
        and newest.chain_key == base.chain_key
        and (newest.status == "running") == (op.closing is not None)
    )


def _place_messages(state: State, op: ResetRun, chain_key: int) -> None:
    inbox = state.inboxes[chain_key]
    if (earlier := state.message_keys.get((chain_key, START_ID))) is not None:
        del inbox[earlier]  # of a run that ended before anybody took it
        state.unkept.discard(earlier)
    if op.revive:
        for key, message in inbox.items():
            if (message.kind, message.verdict) == ("signal", "undelivered"):
                inbox[key] = replace(message, verdict=None)
    start = Message(next(state.keys), "start", START_ID, RESET_NAME, op.inputs, op.time_ms)
    mailbox.put_message(state, chain_key, start, keep_id=False)


def read_resets(state: State, run_key: int) -> list[ResetRow]:
    return [each for _, each in sorted(state.resets.items()) if run_key in {each.run_key, each.base_key}]
