"""Pledger itself, on its shipped defaults, on SQLite or on PostgreSQL where the place has one: the workflows of
`make bench`."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING

from benchmarks import programs
from benchmarks.peers.rival import FleetRival
from pledger import Client, Priority, Worker, connect
from pledger.ops.retention import prune

if TYPE_CHECKING:
    from benchmarks.peers.rivals.on_postgres import Database


class Adapter(FleetRival):
    work_s = programs.WORK_S

    async def up(self) -> None:
        self._ids = (f"run-{number}" for number in count())
        workflows = list(programs.WORKFLOWS.values())
        await self._open(lambda client: Worker(client, workflows=workflows, activities=programs.ACTIVITIES))

    async def serve(self) -> None:
        await self._open(lambda client: Worker(client, activities=programs.ACTIVITIES, task_queue=programs.REMOTE))

    async def _open(self, worker: Callable[[Client], Worker]) -> None:
        async with contextlib.AsyncExitStack() as stack:
            self._client = await stack.enter_async_context(connect(self._url()))
            await stack.enter_async_context(worker(self._client))
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

    def statements(self) -> int | None:
        if self.place.postgres is None:
            return None
        self._database().count_statements()
        return self._database().statements()

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

    async def run_remote(self, activities: int) -> list[float]:
        waited_ms = await self._client.execute_workflow(programs.remote_sequence, activities, id=next(self._ids))
        return [float(each) for each in waited_ms]

    async def start_timer(self, workflow_id: str, due_s: float) -> None:
        await self._client.start_workflow(programs.until, math.ceil(due_s * 1000), id=workflow_id)

    async def timer_result(self, workflow_id: str) -> None:
        await self._client.handle(workflow_id, workflow=programs.until).result()

    @contextlib.asynccontextmanager
    async def shared(self, slots: int) -> AsyncIterator[None]:
        activities = [programs.queued_ms_after_work]
        async with Worker(
            self._client, activities=activities, task_queue=programs.SHARED, max_concurrent_activities=slots
        ):
            yield

    async def run_tenant(self, tenant: str, width: int) -> list[float]:
        waited_ms = await self._client.execute_workflow(
            programs.busy_fan_out, width, id=next(self._ids), priority=Priority(fairness_key=tenant)
        )
        return [float(each) for each in waited_ms]

    async def has_waiting(self, activities: int) -> bool:
        return any(each.queued >= activities for each in await self._client.queues())

    async def forget_finished(self) -> int:
        # Counted from the end of each run by a clock of milliseconds.
        await asyncio.sleep(0.002)
        return (await prune(self._client, timedelta(0), ["sequence"])).runs
