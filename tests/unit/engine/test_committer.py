"""Turns go on, whatever one of those who prepare them does; and there is one commit at a time."""

from __future__ import annotations

import asyncio

import pytest

from pledger.engine.committer import Committer
from pledger.engine.port.answers import Answer, Reply
from pledger.engine.port.operations import LogAttempts, Operation
from pledger.errors import InternalError


class Always:
    """A store that takes everything."""

    def commit(self, batch: list[Operation]) -> asyncio.Future[list[Answer]]:
        future: asyncio.Future[list[Answer]] = asyncio.get_running_loop().create_future()
        future.set_result([Reply.WON] * len(batch))
        return future


class Slow:
    """A store whose commits wait to be answered. most: how many were on their way at a time."""

    def __init__(self) -> None:
        self.waiting: list[tuple[asyncio.Future[list[Answer]], int]] = []
        self.most = 0

    def commit(self, batch: list[Operation]) -> asyncio.Future[list[Answer]]:
        future: asyncio.Future[list[Answer]] = asyncio.get_running_loop().create_future()
        self.waiting.append((future, len(batch)))
        self.most = max(self.most, len(self.waiting))
        return future

    def answer(self) -> None:
        future, count = self.waiting.pop(0)
        future.set_result([Reply.WON] * count)


async def _next_turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_one_commit_is_on_its_way_at_a_time_though_an_answer_brings_more_to_write() -> None:
    store = Slow()
    written: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        committer = Committer(store, loop)

        def submit(name: str) -> None:
            committer.submit(LogAttempts(()), lambda _: written.append(name))

        def more(_: Answer) -> None:
            submit("at once")
            loop.call_soon(submit, "just after")

        committer.submit(LogAttempts(()), more)
        await _next_turns()
        while store.waiting:
            store.answer()
            await _next_turns()

    asyncio.run(main())
    assert written == ["at once", "just after"]
    assert store.most == 1


def test_a_preparer_that_raises_stops_no_turn() -> None:
    raised: list[BaseException] = []

    async def main() -> list[Answer]:
        committer = Committer(Always(), asyncio.get_running_loop(), raised.append)
        committer.on_turn(lambda: 1 / 0)  # type: ignore[arg-type, return-value]
        return [await committer.write(LogAttempts(())) for _ in range(2)]

    assert asyncio.run(main()) == [Reply.WON, Reply.WON]
    assert {type(each) for each in raised} == {ZeroDivisionError}


@pytest.mark.parametrize("kind", [asyncio.CancelledError, SystemExit, GeneratorExit])
def test_an_answer_that_cannot_be_taken_in_harms_nobody_else(kind: type[BaseException]) -> None:
    raised: list[BaseException] = []
    told: list[Answer] = []

    def breaks(_: Answer) -> None:
        raise kind

    async def main() -> None:
        committer = Committer(Always(), asyncio.get_running_loop(), raised.append)
        committer.submit(LogAttempts(()), breaks)
        committer.submit(LogAttempts(()), told.append)
        await _next_turns()
        assert await committer.write(LogAttempts(())) is Reply.WON, "there is another turn"

    asyncio.run(main())
    assert told == [Reply.WON]
    assert [type(each) for each in raised] == [kind]


def test_an_interrupt_ends_the_program_after_the_batch() -> None:
    told: list[Answer] = []

    def interrupted(_: Answer) -> None:
        raise KeyboardInterrupt

    async def main() -> None:
        committer = Committer(Always(), asyncio.get_running_loop())
        committer.submit(LogAttempts(()), interrupted)
        committer.submit(LogAttempts(()), told.append)
        try:
            await asyncio.Event().wait()
        finally:
            assert await committer.write(LogAttempts(())) is Reply.WON, "what is to be closed can be"

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert told == [Reply.WON]


def test_a_store_that_gives_too_few_answers_harms_those_who_asked_and_no_turn_to_come() -> None:
    class Short(Slow):
        def answer(self) -> None:
            future, count = self.waiting.pop(0)
            future.set_result([Reply.WON] * (count - 1))

    store, told = Short(), []

    async def main() -> None:
        committer = Committer(store, asyncio.get_running_loop())
        for _ in range(2):
            committer.submit(LogAttempts(()), told.append)
        await _next_turns()
        store.answer()
        await _next_turns()
        assert [type(each) for each in told] == [InternalError, InternalError]
        committer.submit(LogAttempts(()), told.append)
        await _next_turns()
        assert len(store.waiting) == 1, "there is another turn"

    asyncio.run(main())
