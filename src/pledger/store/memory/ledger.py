"""Runs and their histories."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence

from msgspec.structs import replace

from pledger.engine.port.answers import Answer, Existing, Reply, Started, began, decide_start
from pledger.engine.port.operations import (
    TRIED_MAX,
    Append,
    Block,
    ConfirmClaim,
    Release,
    StartRun,
    Successor,
    Terminate,
)
from pledger.engine.port.records import START_ID, Message, OpenRow, RunRow, RunStatus
from pledger.history.transition import CHAIN_START, StoredTransition
from pledger.store.memory import families, labels, mailbox, pauses, streams, tasks
from pledger.store.memory.state import State

# Operations -----------------------------------------------------------------------------------------------------------


def start_run(state: State, op: StartRun) -> Answer:
    earlier = find_run(state, op.namespace, op.workflow_id)
    if earlier is not None:
        if (own := began(earlier, op)) is not None:
            return own
        decision = decide_start(earlier, op, _first_type(state, earlier))
        if decision != "start":
            return Existing(earlier, decision)
    if op.owner is not None and op.owner not in state.sessions:
        return Reply.LOST
    chain_key, run_key = next(state.keys), next(state.keys)
    state.runs[run_key] = RunRow(
        run_key=run_key,
        chain_key=chain_key,
        namespace=op.namespace,
        workflow_id=op.workflow_id,
        run_id=op.run_id,
        workflow_type=op.workflow_type,
        task_queue=op.task_queue,
        status="running",
        input_digest=op.input_digest,
        started_ms=op.started_ms,
        closed_ms=None,
        last_event=0,
        head=CHAIN_START,
        fence=0 if op.owner is None else 1,
        owner=op.owner,
        due_ms=0,
        claims=0,
        blocked=None,
        blocked_code=None,
    )
    state.open_runs.add(run_key)
    state.newest.setdefault((op.namespace, op.workflow_id), []).append(run_key)
    state.histories[run_key] = []
    state.inboxes[chain_key] = {}
    state.terms[run_key] = op.answers_for, op.deadline_ms
    labels.write(state, run_key, op.attributes, op.memo)
    if op.owner is None:
        state.news = True
        start = Message(next(state.keys), "start", START_ID, "", op.started, op.started_ms)
        mailbox.put_message(state, chain_key, start, keep_id=False)
        if (sent := op.beside) is not None:
            message = Message(next(state.keys), "signal", sent.message_id, sent.name, sent.body, op.started_ms)
            mailbox.put_message(state, chain_key, message, keep_id=sent.keep_id)
    elif op.first is not None:
        op.first.run_key, op.first.fence, op.first.expected_event = run_key, 1, 0
        append(state, op.first)
    return Started(run_key, chain_key)


def _first_type(state: State, run: RunRow) -> str:
    return next(each.workflow_type for each in state.runs.values() if each.chain_key == run.chain_key)


def append(state: State, op: Append) -> Answer:
    run = state.owned_run(op.run_key, op.fence)
    if run is None or run.last_event != op.expected_event:
        return Reply.WON if _is_there(state, op) else Reply.LOST
    state.histories[op.run_key].append(op.transition)
    run = replace(run, last_event=op.last_event, head=op.transition.checksum, due_ms=op.due_ms, claims=0)
    mailbox.consume(state, run.chain_key, op.consumed)
    tasks.put_unwritten(state, op.run_key, op.unwritten)
    tasks.change_tasks(state, op.run_key, op.tasks, op.dropped, op.cancelled)
    tasks.log_attempts(state, op.attempts, op.run_key)
    state.runs[op.run_key] = run
    if op.posts:
        families.send_all(state, op, start_run)
    labels.write(state, op.run_key, op.attributes, op.memo)
    labels.write_terms(state, op)
    if op.published:
        streams.extend(state, op)
    if op.closed is not None:
        families.part(state, run, op.report, op.time_ms, has_dependants=op.has_dependants)
        state.close_run(run, op.closed, op.time_ms)
        if op.successor is not None:
            _succeed(state, run, op.successor, op.time_ms)
    return Reply.WON


def _succeed(state: State, run: RunRow, successor: Successor, now_ms: int) -> None:
    run_key = next(state.keys)
    state.runs[run_key] = RunRow(
        run_key=run_key,
        chain_key=run.chain_key,
        namespace=run.namespace,
        workflow_id=run.workflow_id,
        run_id=successor.run_id,
        workflow_type=successor.workflow_type,
        task_queue=successor.task_queue,
        status="running",
        input_digest=run.input_digest,
        started_ms=now_ms,
        closed_ms=None,
        last_event=0,
        head=CHAIN_START,
        fence=0,
        owner=None,
        due_ms=0,
        claims=0,
        blocked=None,
        blocked_code=None,
    )
    labels.hand_on(state, run.run_key, run_key, successor.deadline_ms)
    state.open_runs.add(run_key)
    state.newest[run.namespace, run.workflow_id].append(run_key)
    state.histories[run_key] = []
    start = Message(next(state.keys), "start", START_ID, successor.name, successor.started, now_ms)
    mailbox.put_message(state, run.chain_key, start, keep_id=False)
    pauses.hand_on(state, run.run_key, run_key, successor.run_id)
    hand_on_doubts(state, run.run_key, run_key)


def hand_on_doubts(state: State, run_key: int, successor_key: int) -> None:
    if run_key in state.losses:
        state.losses[successor_key] = state.losses[run_key]


def _is_there(state: State, op: Append) -> bool:
    """Whether the run's newest transition is this one. The checksum covers its place, its content and all before it; an
    append that closed the run has raised the fence by one."""
    run = state.runs.get(op.run_key)
    if run is None or run.head != op.transition.checksum:
        return False
    if op.closed is not None:
        return run.fence == op.fence + 1 and run.owner is None
    return state.owned_run(run.run_key, op.fence) is run


def release(state: State, op: Release) -> Answer:
    run = state.owned_run(op.run_key, op.fence)
    if run is None:
        return Reply.LOST
    tasks.change_tasks(state, op.run_key, op.tasks, (), ())
    state.runs[op.run_key] = state.let_go(run, op.due_ms)
    return Reply.WON


def block(state: State, op: Block) -> Answer:
    run = state.owned_run(op.run_key, op.fence)
    if run is None:
        return Reply.LOST
    tasks.change_tasks(state, op.run_key, op.tasks, (), ())
    # Due at once, for code that may do better: what the run was waiting for may have been what its code failed on.
    state.tried[op.run_key] = run.last_event, [*state.tried_codes(run), op.code][-TRIED_MAX:]
    state.runs[op.run_key] = replace(state.let_go(run, 0), blocked=op.reason, blocked_code=op.code, claims=0)
    return Reply.WON


def confirm_claim(state: State, op: ConfirmClaim) -> Answer:
    run = state.owned_run(op.run_key, op.fence)
    if run is None:
        return Reply.LOST
    state.runs[op.run_key] = replace(run, claims=0)
    return Reply.WON


def terminate(state: State, op: Terminate) -> Answer:
    run = state.runs.get(op.run_key)
    if run is None or run.status != "running":
        return Reply.LOST
    if (run.last_event, run.head) != (op.expected_event, op.expected_head):
        return Reply.LOST
    state.histories[op.run_key].append(op.transition)
    run = replace(run, last_event=op.last_event, head=op.transition.checksum)
    families.part(state, run, op.report, op.time_ms, has_dependants=True)
    state.close_run(run, op.status, op.time_ms)
    return Reply.WON


# Reads ----------------------------------------------------------------------------------------------------------------


def find_run(state: State, namespace: str, workflow_id: str, run_id: str | None = None) -> RunRow | None:
    runs = [state.runs[key] for key in state.newest.get((namespace, workflow_id), [])]
    return next((run for run in reversed(runs) if run_id is None or run.run_id == run_id), None)


def read_run(state: State, run_key: int) -> RunRow:
    return state.run(run_key)


def read_current(state: State, run_key: int) -> RunRow:
    return state.current_of(state.run(run_key))


def read_statuses(state: State, run_keys: Sequence[int]) -> dict[int, tuple[RunStatus, bool]]:
    runs = [state.runs[run_key] for run_key in run_keys if run_key in state.runs]
    return {run.run_key: (run.status, run.blocked is not None) for run in runs}


def read_last_transitions(state: State, run_key: int) -> list[StoredTransition]:
    return state.histories.get(run_key, [])[-2:]


def read_history(state: State, run_key: int, after_event: int, limit: int) -> list[StoredTransition]:
    history = state.histories.get(run_key, [])
    start = bisect_right(history, after_event, key=lambda transition: transition.first_event_id)
    return history[start : start + limit]


def count_open(state: State, namespace: str, now_ms: int) -> list[OpenRow]:
    found: dict[tuple[str, str, str], list[int | None]] = defaultdict(list)
    for run_key in state.open_runs:
        run = state.runs[run_key]
        if run.namespace == namespace:
            at, since_ms = _at(run, now_ms)
            found[run.task_queue, run.workflow_type, at].append(since_ms)
    return [
        OpenRow(*place, len(sinces), min((each for each in sinces if each is not None), default=None))
        for place, sinces in sorted(found.items())
    ]


def _at(run: RunRow, now_ms: int) -> tuple[str, int | None]:
    """What an open run is at; and since when, where it is ready."""
    if run.blocked is not None:
        return "blocked", None
    if run.owner is not None:
        return "held", None
    if run.due_ms is None or run.due_ms > now_ms:
        return "waiting", None
    return "ready", run.due_ms or (None if run.last_event else run.started_ms)
