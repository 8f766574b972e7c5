"""Operations of one round never look at what another one of it changes; and a round is as long as it can be."""

from __future__ import annotations

import pytest

from pledger.engine.port.operations import (
    ConfirmClaim,
    FinishTask,
    Heartbeat,
    LogAttempts,
    Operation,
    PutTask,
    Release,
    Send,
    StartRun,
)
from pledger.store.postgres.rounds import cut_into_rounds
from pledger.store.postgres.rules.every import needs_of
from tests.conformance.harness import append, start, task
from tests.unit.store.postgres.rows import a_run

RUN = a_run()


def send(run_key: int, message_id: str) -> Send:
    return Send(run_key, "signal", message_id, "approve", b"[]", 0)


def put(event_id: int) -> PutTask:
    return PutTask(1, task(RUN, event_id))


def beat(event_id: int) -> Heartbeat:
    return Heartbeat(RUN.run_key, event_id, 1, 7, None)


def done(event_id: int) -> FinishTask:
    return FinishTask(RUN.run_key, event_id, 1, 7, b"outcome")


def born(workflow_id: str, namespace: str = "default") -> StartRun:
    return start(workflow_id, namespace=namespace)


KEY = RUN.run_key


@pytest.mark.parametrize(
    ("batch", "lengths"),
    [
        ([], []),
        ([Release(1, 1, None), Release(2, 1, None)], [2]),
        ([Release(1, 1, None), ConfirmClaim(1, 1)], [1, 1]),
        ([send(1, "a"), send(1, "b"), send(2, "a")], [3]),
        ([send(1, "a"), send(1, "a")], [1, 1]),
        ([send(1, "a"), Release(1, 1, None), send(1, "b")], [1, 1, 1]),
        ([send(1, "a"), Release(2, 1, None), send(3, "b")], [3]),
        ([put(1), put(2), done(3), beat(4)], [4]),
        ([put(1), done(1)], [1, 1]),
        ([put(1), beat(2), Release(KEY, 1, None)], [2, 1]),
        ([born("a"), born("b"), born("a", "elsewhere")], [3]),
        ([born("a"), born("a"), born("b")], [1, 2]),
        ([LogAttempts(()), LogAttempts(()), Release(1, 1, None)], [3]),
    ],
)
def test_a_batch_is_cut_where_it_must_be(batch: list[Operation], lengths: list[int]) -> None:
    rounds = cut_into_rounds(batch)
    assert [len(each) for each in rounds] == lengths
    assert [pair for each in rounds for pair in each] == list(enumerate(batch))


def test_a_transition_looks_for_no_row_of_what_it_schedules_itself() -> None:
    scheduled, retried = task(RUN, RUN.last_event + 2), task(RUN, RUN.last_event, attempt=2)
    assert needs_of([append(RUN, tasks=[scheduled, retried], dropped=[1])]).tasks == {(KEY, RUN.last_event), (KEY, 1)}
