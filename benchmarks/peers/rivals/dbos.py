"""DBOS Transact on SQLite, or on PostgreSQL where the place has one.

Sequences are plain functions on threads, which is its faster way for them; what waits or runs at once is async.
"""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

from dbos import DBOS, SetWorkflowID, WorkflowHandleAsync

from benchmarks.peers.rival import Rival
from benchmarks.peers.rivals.on_postgres import Database

#: Threads that start sequences and wait for their results.
STARTERS = 32

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


class Adapter(Rival):
    async def up(self) -> None:
        self._starters = ThreadPoolExecutor(STARTERS)
        # The handle of a start knows its run in memory; one that is looked up asks the database each second.
        self._waiters: dict[str, WorkflowHandleAsync[object]] = {}
        DBOS(
            config={
                "name": "peers",
                "system_database_url": self._url("postgresql+psycopg"),
                "log_level": "WARNING",
                # Recovery is for runs of the same version and executor: those of the killed process.
                "application_version": "1",
                "executor_id": "peers",
            }
        )
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

    def disk_bytes(self) -> int:
        return super().disk_bytes() if self.place.postgres is None else Database(self.place).disk_bytes()

    async def counters(self) -> dict[str, float]:
        return {} if self.place.postgres is None else await Database(self.place).counters()

    def _url(self, driver: str) -> str:
        place = self.place
        return f"sqlite:///{place.directory}/dbos.sqlite" if place.postgres is None else Database(place).url(driver)
