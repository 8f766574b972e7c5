"""Temporal's dev server, a process with a SQLite file, and the Python SDK's worker.

variant `tuned`: write-ahead log instead of a rollback journal, and without the bound on how often the history service
polls its queues, which is what paces a step of the dev server as it comes.
"""

import asyncio
import sys
import time
from datetime import timedelta
from itertools import count
from pathlib import Path

from temporalio import activity, workflow
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from benchmarks.peers.rival import Rival

QUEUE = "peers"
TIMEOUT = timedelta(seconds=60)

_LIMITS = (
    "history.transferProcessorMaxPollRPS",
    "history.transferProcessorMaxPollHostRPS",
    "history.timerProcessorMaxPollRPS",
)
_TUNED = [
    "--sqlite-pragma",
    "journal_mode=wal",
    *(word for limit in _LIMITS for word in ("--dynamic-config-value", f"{limit}=20000")),
]

_step_times: list[float] = []
_asleep: list[int] = []


@activity.defn
async def step(number: int) -> dict[str, int]:
    _step_times.append(time.perf_counter())
    return {"number": number}


@activity.defn
async def last_step(number: int) -> dict[str, int]:
    _asleep.append(number)
    return {"number": number}


@workflow.defn(sandboxed=False)
class Sequence:
    @workflow.run
    async def run(self, steps: int) -> dict[str, int]:
        for number in range(steps):
            await workflow.execute_activity(step, number, start_to_close_timeout=TIMEOUT)
        return {"number": steps}


@workflow.defn(sandboxed=False)
class FanOut:
    @workflow.run
    async def run(self, width: int) -> dict[str, int]:
        steps = (workflow.execute_activity(step, number, start_to_close_timeout=TIMEOUT) for number in range(width))
        return {"number": len(await asyncio.gather(*steps))}


@workflow.defn(sandboxed=False)
class Waiter:
    def __init__(self) -> None:
        self._received: dict[str, int] | None = None

    @workflow.signal
    def go(self, message: dict[str, int]) -> None:
        self._received = message

    @workflow.run
    async def run(self) -> dict[str, int]:
        await workflow.wait_condition(lambda: self._received is not None)
        assert self._received is not None
        return self._received


@workflow.defn(sandboxed=False)
class Sleeper:
    @workflow.run
    async def run(self, seconds: float) -> dict[str, int]:
        await workflow.execute_activity(step, 0, start_to_close_timeout=TIMEOUT)
        await workflow.execute_activity(last_step, 1, start_to_close_timeout=TIMEOUT)
        await asyncio.sleep(seconds)
        await workflow.execute_activity(step, 2, start_to_close_timeout=TIMEOUT)
        await workflow.execute_activity(step, 3, start_to_close_timeout=TIMEOUT)
        return {"number": 4}


class Adapter(Rival):
    async def up(self) -> None:
        self._ids = (f"run-{number}" for number in count())
        self._server = await WorkflowEnvironment.start_local(
            ip="127.0.0.1",
            port=self.place.ports[0],
            dev_server_existing_path=str(Path(sys.executable).with_name("temporal")),
            dev_server_database_filename=str(self.place.directory / "temporal.db"),
            dev_server_log_level="error",
            dev_server_startup_timeout=TIMEOUT,
            dev_server_extra_args=_TUNED if self.place.variant == "tuned" else [],
        )
        self._client = self._server.client
        self._worker = Worker(
            self._client,
            task_queue=QUEUE,
            workflows=[Sequence, FanOut, Waiter, Sleeper],
            activities=[step, last_step],
            max_concurrent_activities=200,
            max_concurrent_workflow_tasks=200,
            max_cached_workflows=2_000,
        )
        self._working = asyncio.create_task(self._worker.run())

    async def down(self) -> None:
        await self._worker.shutdown()
        await self._working
        await self._server.shutdown()

    async def run_sequence(self, steps: int) -> None:
        await self._client.execute_workflow(Sequence.run, steps, id=next(self._ids), task_queue=QUEUE)

    async def fan_out(self, width: int) -> None:
        await self._client.execute_workflow(FanOut.run, width, id=next(self._ids), task_queue=QUEUE)

    async def start_waiter(self, workflow_id: str) -> None:
        await self._client.start_workflow(Waiter.run, id=workflow_id, task_queue=QUEUE)

    async def signal(self, workflow_id: str) -> None:
        await self._client.get_workflow_handle(workflow_id).signal(Waiter.go, {"number": 1})

    async def waiter_result(self, workflow_id: str) -> None:
        await self._client.get_workflow_handle(workflow_id).result()

    async def start_sleeper(self, workflow_id: str, seconds: float) -> None:
        await self._client.start_workflow(Sleeper.run, seconds, id=workflow_id, task_queue=QUEUE)

    async def asleep(self) -> int:
        return len(_asleep)

    async def open_sleepers(self) -> int:
        found = await self._client.count_workflows("WorkflowType = 'Sleeper' AND ExecutionStatus = 'Running'")
        return found.count

    async def step_times(self) -> list[float]:
        return _step_times
