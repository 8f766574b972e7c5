"""The answer to a commit takes its time, and others are faster: forced interleavings."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from pledger import Client, Worker, activity, workflow
from pledger.engine.connection import Connection
from pledger.engine.port.answers import Answer
from pledger.engine.port.operations import Operation, Send, StartRun
from pledger.errors import StoreUnavailableError
from pledger.store.memory import MemoryStore, State
from tests.engine.harness import PATIENCE_S, until


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


@workflow.defn
class Waits:
    def __init__(self) -> None:
        self.told = ""

    @workflow.run
    async def run(self) -> str:
        await workflow.wait_condition(lambda: self.told)
        return self.told

    @workflow.signal
    def tell(self, what: str) -> None:
        self.told = what


class SlowMessages(MemoryStore):
    """A message is stored; the answer comes once the test lets it, or is an error."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.stored = asyncio.Event()
        self.answer = asyncio.Event()
        self.lost = False

    def commit(self, batch: Sequence[Operation]) -> asyncio.Future[list[Answer]]:
        done = super().commit(batch)
        return asyncio.ensure_future(self._slow(done)) if any(isinstance(each, Send) for each in batch) else done

    async def _slow(self, done: asyncio.Future[list[Answer]]) -> list[Answer]:
        answers = await done
        self.stored.set()
        await self.answer.wait()
        if self.lost:
            raise StoreUnavailableError("the answer is lost")
        return answers


async def test_a_message_whose_answer_is_lost_is_delivered_all_the_same() -> None:
    """Its sender and the run's owner are one process: no wake-up is stored, and the sender may never try again."""
    store = SlowMessages(State())
    store.lost = True
    store.answer.set()
    connection = Connection(store)
    async with asyncio.timeout(PATIENCE_S), Worker(Client(connection), workflows=[Waits]):
        handle = await Client(connection).start_workflow(Waits, id="waits")
        await until(lambda: connection.engines[0].runs.active)
        with pytest.raises(StoreUnavailableError):
            await handle.signal(Waits.tell, "news", message_id="1")
        assert await handle.result() == "news"
    await connection.close()


async def test_a_message_whose_sender_gave_up_waiting_is_delivered_all_the_same() -> None:
    store = SlowMessages(State())
    connection = Connection(store)
    async with asyncio.timeout(PATIENCE_S), Worker(Client(connection), workflows=[Waits]):
        handle = await Client(connection).start_workflow(Waits, id="waits")
        sending = asyncio.create_task(handle.signal(Waits.tell, "news"))
        await store.stored.wait()
        sending.cancel()
        await asyncio.wait([sending])
        store.answer.set()
        assert await handle.result() == "news"
    await connection.close()
