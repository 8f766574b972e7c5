"""DBOS Transact on SQLite, or on PostgreSQL where the place has one.

Sequences are plain functions on threads, which is its faster way for them; what waits or runs at once is async.

An activity in a queue is a workflow of its own, enqueued by another one, which is how its documentation does it.
Tenants are partitions of one queue: each may have half of the slots, all together all of them. Queues and results are
looked up each POLL_S instead of each second, as its settings allow: shorter costs throughput, and longer latency.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from dbos import DBOS, SetEnqueueOptions, SetWorkflowID, WorkflowHandleAsync

from benchmarks.peers.rival import FleetRival
from benchmarks.peers.rivals.on_postgres import Database

#: Threads that start sequences and wait for their results.
STARTERS = 32

#: The queue of the other process, and the one of all tenants.
REMOTE = "remote"
SHARED = "shared"

POLL_S = 0.02

ENQUEUED_AT_ONCE = 10

#: Workflows that are listed and deleted in one go.
PAGE = 500

_step_times: list[float] = []
_asleep: list[int] = []


@DBOS.step()
def plain_step(number: int) -> dict[str, int]:
    _step_times.append(time.perf_counter())
    return {"number": number}


@DBOS.step()
async def step(number: int) -> dict[str, int]:
    _step_times.append(time.perf_counter())
    return {"number": number}


@DBOS.step()
async def last_step(number: int) -> dict[str, int]:
    _asleep.append(number)
    return {"number": number}


@DBOS.workflow()
def sequence(steps: int) -> dict[str, int]:
    for number in range(steps):
        plain_step(number)
    return {"number": steps}


@DBOS.workflow()
async def fan_out(width: int) -> dict[str, int]:
    return {"number": len(await asyncio.gather(*(step(number) for number in range(width))))}


@DBOS.workflow()
async def waiter() -> object:
    return await DBOS.recv_async("go", timeout_seconds=600)


@DBOS.workflow()
async def sleeper(seconds: float) -> dict[str, int]:
    await step(0)
    await last_step(1)
    await DBOS.sleep_async(seconds)
    await step(2)
    await step(3)
    return {"number": 4}


@DBOS.workflow()
def queued_ms(enqueued_s: float) -> float:
    return (time.time() - enqueued_s) * 1000


@DBOS.workflow()
def remote_sequence(activities: int) -> list[float]:
    waited_ms = []
    for _ in range(activities):
        handle = DBOS.enqueue_workflow(REMOTE, queued_ms, time.time())
        waited_ms.append(handle.get_result(polling_interval_sec=POLL_S))
    return waited_ms


@DBOS.workflow()
async def queued_ms_and_work(enqueued_s: float) -> float:
    waited_ms = (time.time() - enqueued_s) * 1000
    await asyncio.sleep(FleetRival.work_s)
    return waited_ms


@DBOS.workflow()
async def tenant_fan_out(tenant: str, width: int) -> list[float]:
    handles: list[WorkflowHandleAsync[float]] = []
    with SetEnqueueOptions(queue_partition_key=tenant):
        while len(handles) < width:
            # Not all at once, for which its pool of connections is too small.
            room = min(ENQUEUED_AT_ONCE, width - len(handles))
            starts = [DBOS.enqueue_workflow_async(SHARED, queued_ms_and_work, time.time()) for _ in range(room)]
            handles += await asyncio.gather(*starts)
    return [await handle.get_result(polling_interval_sec=POLL_S) for handle in handles]


@DBOS.workflow()
async def until_due(due_s: float) -> dict[str, int]:
    await DBOS.sleep_async(due_s - time.time())
    return {"number": 1}


class Adapter(FleetRival):
    async def up(self) -> None:
        self._open(executor_id="peers", queue=SHARED)

    async def serve(self) -> None:
        self._open(executor_id="remote", queue=REMOTE)
        await DBOS.register_queue_async(REMOTE, polling_interval_sec=POLL_S)

    def _open(self, executor_id: str, queue: str) -> None:
        """queue: the one that this process serves, once there is any."""
        self._starters = ThreadPoolExecutor(STARTERS)
        self._timers: dict[str, WorkflowHandleAsync[dict[str, int]]] = {}
        # The handle of a start knows its run in memory; one that is looked up asks the database each second.
        self._waiters: dict[str, WorkflowHandleAsync[object]] = {}
        DBOS(
            config={
                "name": "peers",
                "system_database_url": self._url("postgresql+psycopg"),
                "log_level": "WARNING",
                # Recovery is for runs of the same version and executor: those of the killed process.
                "application_version": "1",
                "executor_id": executor_id,
            }
        )
        DBOS.listen_queues([queue])
        DBOS.launch()

    async def down(self) -> None:
        DBOS.destroy()
        self._starters.shutdown(wait=False)

    async def run_sequence(self, steps: int) -> None:
        def run() -> None:
            DBOS.start_workflow(sequence, steps).get_result()

        await asyncio.get_running_loop().run_in_executor(self._starters, run)

    async def fan_out(self, width: int) -> None:
        await (await DBOS.start_workflow_async(fan_out, width)).get_result()

    async def start_waiter(self, workflow_id: str) -> None:
        with SetWorkflowID(workflow_id):
            self._waiters[workflow_id] = await DBOS.start_workflow_async(waiter)

    async def signal(self, workflow_id: str) -> None:
        await DBOS.send_async(workflow_id, {"number": 1}, "go")

    async def waiter_result(self, workflow_id: str) -> None:
        await self._waiters.pop(workflow_id).get_result()

    async def start_sleeper(self, workflow_id: str, seconds: float) -> None:
        with SetWorkflowID(workflow_id):
            await DBOS.start_workflow_async(sleeper, seconds)

    async def asleep(self) -> int:
        return len(_asleep)

    async def open_sleepers(self) -> int:
        found = await DBOS.list_workflows_async(status="PENDING", limit=1, load_input=False, load_output=False)
        return len(found)

    async def step_times(self) -> list[float]:
        return _step_times

    async def run_remote(self, activities: int) -> list[float]:
        def run() -> list[float]:
            return DBOS.start_workflow(remote_sequence, activities).get_result()

        return await asyncio.get_running_loop().run_in_executor(self._starters, run)

    async def start_timer(self, workflow_id: str, due_s: float) -> None:
        with SetWorkflowID(workflow_id):
            self._timers[workflow_id] = await DBOS.start_workflow_async(until_due, due_s)

    async def timer_result(self, workflow_id: str) -> None:
        await self._timers.pop(workflow_id).get_result()

    @asynccontextmanager
    async def shared(self, slots: int) -> AsyncIterator[None]:
        await DBOS.register_queue_async(
            SHARED,
            worker_concurrency=slots,
            partition_worker_concurrency=slots // 2,
            polling_interval_sec=POLL_S,
        )
        yield
        # Who serves it stops; what waits in it stays.
        await DBOS.delete_queue_async(SHARED)
        await asyncio.sleep(1)

    async def run_tenant(self, tenant: str, width: int) -> list[float]:
        return await (await DBOS.start_workflow_async(tenant_fan_out, tenant, width)).get_result()

    async def has_waiting(self, activities: int) -> bool:
        found = await DBOS.list_queued_workflows_async(
            queue_name=SHARED, status="ENQUEUED", limit=1, offset=activities - 1, load_input=False, load_output=False
        )
        return bool(found)

    async def forget_finished(self) -> int:
        # Its open-source part has no retention by age, only a list and a deletion by ids.
        forgotten = 0
        while found := await DBOS.list_workflows_async(
            status="SUCCESS", name=sequence.__qualname__, limit=PAGE, load_input=False, load_output=False
        ):
            await DBOS.delete_workflows_async([each.workflow_id for each in found])
            forgotten += len(found)
        return forgotten

    def statements(self) -> int | None:
        if self.place.postgres is None:
            return None
        database = Database(self.place)
        database.count_statements()
        return database.statements()

    def disk_bytes(self) -> int:
        return super().disk_bytes() if self.place.postgres is None else Database(self.place).disk_bytes()

    async def counters(self) -> dict[str, float]:
        return {} if self.place.postgres is None else await Database(self.place).counters()

    def _url(self, driver: str) -> str:
        place = self.place
        return f"sqlite:///{place.directory}/dbos.sqlite" if place.postgres is None else Database(place).url(driver)
