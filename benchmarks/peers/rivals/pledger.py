"""Pledger itself, on its shipped defaults, on SQLite or on PostgreSQL where the place has one: the workflows of
`make bench`."""

import contextlib
from itertools import count
from typing import TYPE_CHECKING

from benchmarks import programs
from benchmarks.peers.rival import Rival
from pledger import Worker, connect

if TYPE_CHECKING:
    from benchmarks.peers.rivals.on_postgres import Database


class Adapter(Rival):
    async def up(self) -> None:
        self._ids = (f"run-{number}" for number in count())
        async with contextlib.AsyncExitStack() as stack:
            self._client = await stack.enter_async_context(connect(self._url()))
            workflows = list(programs.WORKFLOWS.values())
            await stack.enter_async_context(Worker(self._client, workflows=workflows, activities=programs.ACTIVITIES))
            self._stack = stack.pop_all()

    def _url(self) -> str:
        if self.place.postgres is None:
            return f"sqlite:///{self.place.directory}/ledger.db"
        self._database().create()
        return self._database().url()

    def _database(self) -> "Database":
        # The driver is there in the environment of that setting alone.
        from benchmarks.peers.rivals.on_postgres import Database  # noqa: PLC0415

        return Database(self.place)

    def disk_bytes(self) -> int:
        return super().disk_bytes() if self.place.postgres is None else self._database().disk_bytes()

    async def counters(self) -> dict[str, float]:
        return {} if self.place.postgres is None else await self._database().counters()

    async def down(self) -> None:
        await self._stack.aclose()

    async def run_sequence(self, steps: int) -> None:
        await self._client.execute_workflow(programs.sequence, steps, id=next(self._ids))

    async def fan_out(self, width: int) -> None:
        await self._client.execute_workflow(programs.fan_out, width, id=next(self._ids))

    async def start_waiter(self, workflow_id: str) -> None:
        await self._client.start_workflow(programs.Waiter, id=workflow_id)

    async def signal(self, workflow_id: str) -> None:
        handle = self._client.handle(workflow_id, workflow=programs.Waiter)
        await handle.signal(programs.Waiter.go, programs.Done(1))

    async def waiter_result(self, workflow_id: str) -> None:
        await self._client.handle(workflow_id, workflow=programs.Waiter).result()

    async def start_sleeper(self, workflow_id: str, seconds: float) -> None:
        await self._client.start_workflow(programs.sleeper, seconds, id=workflow_id)

    async def asleep(self) -> int:
        return len(programs.nearly_asleep)

    async def open_sleepers(self) -> int:
        return len([run async for run in self._client.list() if run.status == "running"])

    async def step_times(self) -> list[float]:
        return programs.step_times
