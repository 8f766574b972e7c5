"""Turns go on, whatever one of those who prepare them does."""

from __future__ import annotations

import asyncio

from pledger.engine.committer import Committer
from pledger.engine.port.answers import Answer, Reply
from pledger.engine.port.operations import LogAttempts, Operation


class Always:
    """A store that takes everything."""

    def commit(self, batch: list[Operation]) -> asyncio.Future[list[Answer]]:
        future: asyncio.Future[list[Answer]] = asyncio.get_running_loop().create_future()
        future.set_result([Reply.WON] * len(batch))
        return future


def test_a_preparer_that_raises_stops_no_turn() -> None:
    raised: list[BaseException] = []

    async def main() -> list[Answer]:
        committer = Committer(Always(), asyncio.get_running_loop(), raised.append)
        committer.on_turn(lambda: 1 / 0)  # type: ignore[arg-type, return-value]
        return [await committer.write(LogAttempts(())) for _ in range(2)]

    assert asyncio.run(main()) == [Reply.WON, Reply.WON]
    assert {type(each) for each in raised} == {ZeroDivisionError}
