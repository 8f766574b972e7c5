"""What an attempt publishes: in order, batch after batch, again where nobody knows, and no more once it is lost."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from pledger import activity
from pledger.engine import publishing
from pledger.engine.attempt import Attempt
from pledger.engine.port.answers import Answer, Published, Reply
from pledger.engine.port.operations import Publish
from pledger.engine.publishing import Publishing
from pledger.errors import StoreUnavailableError, UsageError
from pledger.history import publishing as bounds
from pledger.history.events import ActivityOptions, ScheduleActivity
from pledger.machine.identity import RunIdentity


@activity.defn
async def stream() -> None: ...


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(**given: Any) -> None:
        asyncio.run(test(**given))

    return run


class Bench:
    """An attempt, and a store whose answers the test gives."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.sent: list[tuple[Publish, Callable[[Answer], None]]] = []
        self.told: list[int] = []
        self.on_hold = False
        committer: Any = SimpleNamespace(submit=lambda operation, done: self.sent.append((operation, done)))
        clock: Any = SimpleNamespace(now_ms=lambda: 7)
        rows: Any = SimpleNamespace(is_on_hold=lambda _: self.on_hold)
        self.publishing = Publishing(committer, clock, loop, rows, self.told.append)
        who = RunIdentity(
            namespace="default", workflow_id="order-1", run_id="run-1", workflow_type="fulfil", task_queue="default"
        )
        command = ScheduleActivity("stream", b"[]", ActivityOptions())
        self.attempt = Attempt(stream, who, 1, 3, command, 1, 5, 0, 0, None, loop)
        self.attempt.on_publish = self.publishing.publish

    def batches(self) -> list[tuple[int, list[bytes]]]:
        """Of each operation so far: how many values came before it, and its own."""
        return [(operation.number, [each.body for each in operation.values]) for operation, _ in self.sent]

    def answer(self, answer: Answer) -> None:
        self.sent[-1][1](answer)


@in_a_loop
async def test_what_comes_while_a_batch_is_on_its_way_is_the_next_one() -> None:
    bench = Bench()
    for value in range(3):
        bench.attempt.publish("tokens", value)
    assert bench.batches() == [(0, [b"0"])]
    bench.answer(Published(9))
    assert bench.batches() == [(0, [b"0"]), (1, [b"1", b"2"])]
    ended: list[str] = []
    outbox = bench.attempt.outbox
    assert outbox is not None
    assert outbox.is_pending
    outbox.waiters.append(lambda: ended.append("ended"))
    bench.answer(Published(9))
    assert (bench.told, ended, outbox.is_pending, outbox.values, outbox.bytes) == ([9, 9], ["ended"], False, 0, 0)
    operation = bench.sent[0][0]
    assert (operation.owner, operation.fence, operation.attempt, operation.time_ms) == (None, 5, 1, 7)


@in_a_loop
async def test_a_batch_whose_answer_is_lost_is_sent_again_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "AGAIN_S", 0.0)
    bench = Bench()
    bench.attempt.publish("tokens", "a")
    bench.attempt.publish("tokens", "b")
    bench.answer(StoreUnavailableError("gone"))
    await asyncio.sleep(0.001)
    assert bench.batches() == [(0, [b'"a"'])] * 2
    bench.answer(Published(9))
    assert bench.batches()[2:] == [(1, [b'"b"'])]


@in_a_loop
async def test_what_is_lost_publishes_no_more_and_keeps_nobody_waiting() -> None:
    bench = Bench()
    bench.attempt.publish("tokens", 1)
    bench.attempt.publish("tokens", 2)
    ended: list[str] = []
    outbox = bench.attempt.outbox
    assert outbox is not None
    outbox.waiters.append(lambda: ended.append("ended"))
    bench.answer(Reply.LOST)
    bench.attempt.publish("tokens", 3)
    assert (len(bench.sent), ended, outbox.is_pending, outbox.values) == (1, ["ended"], False, 0)


@in_a_loop
async def test_an_attempt_whose_row_is_on_its_way_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its run was let go while it goes on: the row that gives it its right may come later than this batch."""
    monkeypatch.setattr(publishing, "AGAIN_S", 0.0)
    bench = Bench()
    bench.attempt.publish("tokens", 1)
    bench.attempt.row, bench.on_hold = SimpleNamespace(owner=4), True  # type: ignore[assignment] # as much as it takes
    bench.answer(Reply.LOST)
    await asyncio.sleep(0.001)
    assert [operation.owner for operation, _ in bench.sent] == [None, 4]


@in_a_loop
async def test_an_attempt_that_is_over_drops_what_is_left() -> None:
    bench = Bench()
    for value in range(3):
        bench.attempt.publish("tokens", value)
    bench.attempt.finished = True
    bench.answer(Published(9))
    bench.attempt.publish("tokens", 4)
    assert len(bench.sent) == 1
    assert bench.attempt.outbox is not None
    assert bench.attempt.outbox.values == 0


@in_a_loop
async def test_bounds_are_of_what_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "BYTES_MAX", 10)
    monkeypatch.setattr(bounds, "TOPICS_MAX", 1)
    bench = Bench()
    bench.attempt.publish("tokens", "larger by itself")
    with pytest.raises(UsageError, match="1 values with 18 bytes on their way"):
        bench.attempt.publish("tokens", 1)
    bench.answer(Published(9))
    bench.attempt.publish("tokens", 1)
    with pytest.raises(UsageError, match="more than 1 topics"):
        bench.attempt.publish("others", 1)
