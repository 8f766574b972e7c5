"""dura: SQLite, and threads that poll for tasks.

It has neither parallel steps within a task nor a way to wait for a result: that is asked for every few milliseconds.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dura import DurableEngine, run_worker

from benchmarks.peers.rival import Rival, until

WORKERS = 4
CLIENTS = 8

#: Its default is 1 s, which would be all that one measures.
POLL_S = 0.005

#: Between two questions whether a task has ended.
ASK_S = 0.003

_step_times: list[float] = []
_asleep: list[int] = []


class Adapter(Rival):
    async def up(self) -> None:
        self._engine = DurableEngine(self.place.directory / "dura.db")
        self._clients = ThreadPoolExecutor(CLIENTS)
        self._stop = threading.Event()
        self._waiters: dict[str, str] = {}
        handlers = {"sequence": sequence, "waiter": waiter, "sleeper": sleeper}
        self._workers = [
            threading.Thread(
                target=run_worker,
                args=(self._engine,),
                kwargs={
                    "handlers": handlers,
                    "worker_id": f"worker-{number}",
                    "stop_event": self._stop,
                    "poll_interval": POLL_S,
                },
                daemon=True,
            )
            for number in range(WORKERS)
        ]
        for worker in self._workers:
            worker.start()

    async def down(self) -> None:
        self._stop.set()
        for worker in self._workers:
            worker.join()
        self._clients.shutdown()

    async def run_sequence(self, steps: int) -> None:
        await self._until_completed(await self._spawn("sequence", {"steps": steps}))

    async def fan_out(self, width: int) -> None:
        raise NotImplementedError

    async def start_waiter(self, workflow_id: str) -> None:
        self._waiters[workflow_id] = await self._spawn("waiter", {"key": workflow_id})

    async def signal(self, workflow_id: str) -> None:
        await self._in_thread(lambda: self._engine.emit_event(event_name=f"go-{workflow_id}", payload={"number": 1}))

    async def waiter_result(self, workflow_id: str) -> None:
        await self._until_completed(self._waiters.pop(workflow_id))

    async def start_sleeper(self, workflow_id: str, seconds: float) -> None:
        await self._spawn("sleeper", {"key": workflow_id, "seconds": seconds})

    async def asleep(self) -> int:
        return len(_asleep)

    async def open_sleepers(self) -> int:
        counts = await self._in_thread(self._engine.task_counts_by_state)
        return sum(number for state, number in counts.items() if state != "completed")

    async def step_times(self) -> list[float]:
        return _step_times

    async def _spawn(self, name: str, params: dict[str, object]) -> str:
        task = await self._in_thread(lambda: self._engine.spawn_task(name=name, params=params))
        return str(task.task_id)

    async def _until_completed(self, task_id: str) -> None:
        async def is_completed() -> bool:
            found = await self._in_thread(lambda: self._engine.get_task(task_id))
            if found.state == "failed":
                raise RuntimeError(f"task failed: {found.failure_reason}")
            return bool(found.state == "completed")

        await until(is_completed, ASK_S)

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._clients, call)


def _step(engine: DurableEngine, task: Any, number: int) -> None:
    def run() -> dict[str, int]:
        _step_times.append(time.perf_counter())
        return {"number": number}

    engine.checkpoint(task_id=task.task_id, step_name=f"step-{number}", fn=run)


def _last_step(engine: DurableEngine, task: Any, number: int) -> None:
    def run() -> dict[str, int]:
        _asleep.append(number)
        return {"number": number}

    engine.checkpoint(task_id=task.task_id, step_name=f"step-{number}", fn=run)


def sequence(engine: DurableEngine, task: Any) -> dict[str, int]:
    for number in range(task.params["steps"]):
        _step(engine, task, number)
    return {"number": task.params["steps"]}


def waiter(engine: DurableEngine, task: Any) -> object:
    name = f"go-{task.params['key']}"
    return engine.wait_for_event(run_id=task.run_id, task_id=task.task_id, step_name="wait", event_name=name)


def sleeper(engine: DurableEngine, task: Any) -> dict[str, int]:
    _step(engine, task, 0)
    _last_step(engine, task, 1)
    # A wait for what never comes is its sleep.
    engine.wait_for_event(
        run_id=task.run_id,
        task_id=task.task_id,
        step_name="sleep",
        event_name=f"never-{task.params['key']}",
        timeout_secs=int(task.params["seconds"]),
    )
    _step(engine, task, 2)
    _step(engine, task, 3)
    return {"number": 4}
