"""The answer to a commit takes its time, and others are faster: forced interleavings."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pledger import Client, Worker, activity, workflow
from pledger.engine.connection import Connection
from pledger.engine.port import Answer, Operation, StartRun
from pledger.store.memory import MemoryStore, State
from tests.engine.harness import PATIENCE_S


@activity.defn(task_queue="elsewhere")
async def distant(name: str) -> str:
    return name


@workflow.defn
async def far_away(name: str) -> str:
    return await distant(name)


class LateBirths(MemoryStore):
    """What became of a start is heard of once its worker was told of mail."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.told = asyncio.Event()

    def commit(self, batch: Sequence[Operation]) -> asyncio.Future[list[Answer]]:
        done = super().commit(batch)
        return asyncio.ensure_future(self._late(done)) if any(isinstance(each, StartRun) for each in batch) else done

    async def _late(self, done: asyncio.Future[list[Answer]]) -> list[Answer]:
        await self.told.wait()
        await asyncio.sleep(0.01)
        return await done

    async def woken_runs(self, session_key: int) -> list[int]:
        woken = await super().woken_runs(session_key)
        if woken:
            self.told.set()
        return woken


async def test_an_outcome_that_is_faster_than_the_news_of_the_birth() -> None:
    """The run is born, its activity done elsewhere and the owner told, before the owner hears that it has a new run."""
    state = State()
    here, there = Connection(LateBirths(state)), Connection(MemoryStore(state))
    async with (
        asyncio.timeout(PATIENCE_S),
        Worker(Client(here), workflows=[far_away]),
        Worker(Client(there), activities=[distant], task_queue="elsewhere"),
    ):
        handle = await Client(here).start_workflow(far_away, "news", id="far")
        assert await handle.result() == "news"
    for connection in (here, there):
        await connection.close()
