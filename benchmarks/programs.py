"""The workflows and activities that are measured. The steps do nothing, so that what is measured is the engine."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pledger import activity, workflow


@dataclass(frozen=True, slots=True)
class Done:
    number: int


#: The queue of another process, and one that tenants share.
REMOTE: Final = "remote"
SHARED: Final = "shared"

#: What a step takes that does something.
WORK_S: Final = 0.005

#: When each step ran, by `time.perf_counter`.
step_times: Final[list[float]] = []

#: Workflow ids of the sleepers whose last step before the sleep has run.
nearly_asleep: Final[list[str]] = []

#: Whether `hold` never ends: set in a process that is to be killed in mid-step.
holding = False


@activity.defn
async def step(number: int) -> Done:
    step_times.append(time.perf_counter())
    return Done(number)


@activity.defn
async def last_step(number: int) -> Done:
    nearly_asleep.append(activity.info().workflow_id)
    return Done(number)


@activity.defn
async def hold(number: int) -> Done:
    nearly_asleep.append(activity.info().workflow_id)
    if holding:
        await asyncio.Event().wait()
    return Done(number)


@activity.defn
async def queued_ms() -> int:
    """How long this attempt waited in its queue, by the ledger's clock."""
    return _waited_ms()


@activity.defn(task_queue=SHARED)
async def queued_ms_after_work() -> int:
    """The same, of one that takes a while."""
    await asyncio.sleep(WORK_S)
    return _waited_ms()


def _waited_ms() -> int:
    info = activity.info()
    return round((info.started_time - info.scheduled_time).total_seconds() * 1000)


@workflow.defn
async def sequence(steps: int) -> Done:
    for number in range(steps):
        await step(number)
    return Done(steps)


@workflow.defn
async def fan_out(width: int) -> Done:
    return Done(len(await asyncio.gather(*(step(number) for number in range(width)))))


@workflow.defn
async def sleeper(seconds: float) -> Done:
    """Two steps, a sleep, two steps."""
    await step(0)
    await last_step(1)
    await asyncio.sleep(seconds)
    await step(2)
    await step(3)
    return Done(4)


@workflow.defn
async def holder(_seconds: float) -> Done:
    """As `sleeper`, but what lies in the middle is a step."""
    await step(0)
    await step(1)
    await hold(2)
    await step(3)
    return Done(4)


@workflow.defn
async def remote_sequence(steps: int) -> list[int]:
    """Steps that the workers of another queue make; how long each has waited there."""
    return [await workflow.execute_activity(queued_ms, task_queue=REMOTE) for _ in range(steps)]


@workflow.defn
async def busy_fan_out(width: int) -> list[int]:
    """Steps in the queue that tenants share, all at once; how long each has waited there."""
    return list(await asyncio.gather(*(queued_ms_after_work() for _ in range(width))))


@workflow.defn
async def until(due_ms: int) -> Done:
    """Sleeps until then."""
    await asyncio.sleep(due_ms / 1000 - workflow.now().timestamp())
    return Done(due_ms)


@workflow.defn
class Waiter:
    """Waits for one message and returns it."""

    def __init__(self) -> None:
        self._received: Done | None = None

    @workflow.run
    async def run(self) -> Done:
        await workflow.wait_condition(lambda: self._received is not None)
        assert self._received is not None
        return self._received

    @workflow.signal
    def go(self, message: Done) -> None:
        self._received = message


@workflow.defn
class Tally:
    """Counts what it is sent until it is closed."""

    def __init__(self) -> None:
        self._count = 0
        self._is_closed = False

    @workflow.run
    async def run(self) -> Done:
        await workflow.wait_condition(lambda: self._is_closed)
        return Done(self._count)

    @workflow.signal
    def add(self, number: int) -> None:
        self._count += number

    @workflow.update
    async def put(self, number: int) -> Done:
        self._count += 1
        return Done(number)

    @workflow.signal
    def close(self) -> None:
        self._is_closed = True

    @workflow.query
    def count(self) -> int:
        return self._count


async def until_nearly_asleep(count: int) -> None:
    while len(nearly_asleep) < count:  # noqa: ASYNC110 - an event would be set in the steps that are measured
        await asyncio.sleep(0.01)


WORKFLOWS: Final[Mapping[str, Callable[..., Any] | type]] = {
    "sequence": sequence,
    "fan_out": fan_out,
    "sleeper": sleeper,
    "holder": holder,
    "remote_sequence": remote_sequence,
    "busy_fan_out": busy_fan_out,
    "until": until,
    "Waiter": Waiter,
    "Tally": Tally,
}
ACTIVITIES: Final = (step, last_step, hold, queued_ms)
