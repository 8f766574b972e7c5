"""Batches that need no look first: starts of runs that are born here, steps, and last steps, all of different runs.

Each of these is a compare-and-set by itself: its statement writes what it may write, and says whose that was. So such
a batch is one round trip, where others take two (see `commit`). What has not won is asked again among those: they say
why. It leaves no mark. Who asks again because an answer was lost finds what is there: a step by its checksum, a start
by its run id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pledger.engine.port.answers import Answer, Reply, Started
from pledger.engine.port.operations import Append, Operation, StartRun
from pledger.store.postgres.found import Query
from pledger.store.postgres.writes import Row, closing_row, columns


class AtOnce(NamedTuple):
    """Operations of a batch, by kind. batch: all of them, in order."""

    batch: Sequence[Operation]
    births: Sequence[StartRun]
    steps: Sequence[Append]
    ends: Sequence[Append]

    def statements(self, channel: str, name: str) -> Iterator[Query]:
        """With their parameters, in the one order in which everybody locks: sessions, chains, runs by key. channel,
        name: as in `Writes.statements`."""
        births, steps, ends = self.births, self.steps, self.ends
        if births:
            yield "lock_sessions", [sorted({start.owner for start in births if start.owner is not None})]
        if ends:
            yield "lock_chains", [sorted(step.run_key for step in ends)]
        if steps and ends:
            yield "hold_runs", [sorted(step.run_key for step in (*steps, *ends))]
        if len(steps) == 1:
            yield "write_step", step_row(steps[0])
        elif steps:
            yield "write_steps", columns([step_row(step) for step in steps])
        if ends:
            yield "close_runs", [*columns([closing_row(step) for step in ends]), channel, name]
        if births:
            yield "write_births", columns([_birth_row(start) for start in births])

    def answers(self, rows: Mapping[str, Sequence[tuple[Any, ...]]]) -> list[Answer | None]:
        """In the order of the batch; None for what has written nothing. rows: what each statement gave."""
        wins = {row[0] for name in ("write_step", "write_steps", "close_runs") for row in rows.get(name, ())}
        keys = {run_id: (run_key, chain_key) for run_id, run_key, chain_key in rows.get("write_births", ())}
        answers: list[Answer | None] = []
        for operation in self.batch:
            if isinstance(operation, StartRun):
                answers.append(_born(operation, *keys[operation.run_id]) if operation.run_id in keys else None)
            else:
                assert isinstance(operation, Append)
                answers.append(Reply.WON if operation.run_key in wins else None)
        return answers


def at_once(batch: Sequence[Operation]) -> AtOnce | None:
    """The batch, where all of it can be written so."""
    births: list[StartRun] = []
    steps: list[Append] = []
    ends: list[Append] = []
    for operation in batch:
        if isinstance(operation, Append) and _is_plain(operation):
            (steps if operation.closed is None else ends).append(operation)
        elif isinstance(operation, StartRun) and _is_plain_birth(operation):
            births.append(operation)
        else:
            return None
    runs = {step.run_key for step in (*steps, *ends)}
    ids = {(start.namespace, start.workflow_id) for start in births}
    return AtOnce(batch, births, steps, ends) if len(runs) + len(ids) == len(batch) else None


def last_transition(operation: Operation) -> Append:
    """Of an operation that was written so."""
    step = operation.first if isinstance(operation, StartRun) else operation
    assert isinstance(step, Append)
    return step


def step_row(step: Append) -> Row:
    transition = step.transition
    place = (step.run_key, step.fence, step.expected_event, step.last_event, step.due_ms, transition.first_event_id)
    return (*place, transition.body, transition.checksum)


def _is_plain(op: Append) -> bool:
    if op.posts or op.report is not None or op.has_dependants:
        return False  # it concerns other runs
    beside = op.consumed or op.tasks or op.dropped or op.cancelled or op.unwritten or op.attempts
    return not (
        beside
        or op.pieces
        or op.successor
        or op.attributes
        or op.memo
        or op.terms
        or op.phases
        or op.phases_over
        or op.published
    )


def _is_plain_birth(op: StartRun) -> bool:
    first = op.first
    if op.owner is None or first is None or op.attributes or op.memo or op.pieces:
        return False
    return first.closed is None and _is_plain(first)


def _birth_row(op: StartRun) -> Row:
    first = op.first
    assert first is not None
    transition = first.transition
    run = (op.run_id, op.workflow_type, op.task_queue, op.input_digest, op.started_ms, op.owner)
    state = (first.last_event, first.due_ms, transition.first_event_id, transition.body, transition.checksum)
    return (op.namespace, op.workflow_id, *run, *state, op.answers_for, op.deadline_ms)


def _born(op: StartRun, run_key: int, chain_key: int) -> Answer:
    assert op.first is not None
    op.first.run_key, op.first.fence, op.first.expected_event = run_key, 1, 0
    return Started(run_key, chain_key)
