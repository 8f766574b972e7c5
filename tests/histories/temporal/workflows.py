"""The workflows behind the recorded histories, written for Pledger."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from pledger import RetryPolicy, activity, workflow
from pledger.errors import ActivityError, ApplicationError, TimeoutError  # noqa: A004 - the engine's own

SHORT = timedelta(seconds=10)


@activity.defn(start_to_close_timeout=SHORT)
async def echo(value: Any) -> Any: ...


@activity.defn(start_to_close_timeout=SHORT, retry_policy=RetryPolicy(maximum_attempts=5))
async def flaky(attempts: int) -> str: ...


@activity.defn(start_to_close_timeout=SHORT)
async def fail_nr() -> None: ...


@activity.defn(start_to_close_timeout=timedelta(milliseconds=300), retry_policy=RetryPolicy(maximum_attempts=1))
async def hang() -> None: ...


@activity.defn(start_to_close_timeout=SHORT)
async def say_hello(name: str) -> str: ...


@activity.defn(start_to_close_timeout=SHORT)
async def short_activity_async() -> int: ...


@activity.defn(name="AlwaysFail", start_to_close_timeout=SHORT)
async def always_fail() -> None: ...


@activity.defn(name="SleepActivity", start_to_close_timeout=SHORT)
async def sleep_activity() -> None: ...


# Recorded for this project --------------------------------------------------------------------------------------------


@workflow.defn(name="Sequence")
async def sequence(x: int) -> int:
    first = await echo(x + 1)
    second: int = await echo(first + 1)
    return second


@workflow.defn(name="Fanout")
async def fan_out(n: int) -> list[int]:
    return await asyncio.gather(*(echo(i) for i in range(n)))


@workflow.defn(name="Retry")
async def retry(n: int) -> str:
    return await flaky(n)


@workflow.defn(name="ActivityFails")
async def activity_fails() -> str:
    try:
        await fail_nr()
    except ActivityError as error:
        cause = error.__cause__
        assert isinstance(cause, ApplicationError)
        return f"ApplicationError:{cause.type}:{cause.message}"
    return "it did not fail"


@workflow.defn(name="ActTimeout")
async def activity_times_out() -> str:
    try:
        await hang()
    except ActivityError as error:
        cause = error.__cause__
        assert isinstance(cause, TimeoutError)
        return f"TimeoutError:{cause.kind.upper()}"
    return "it did not time out"


@workflow.defn(name="Signals")
class Signals:
    def __init__(self) -> None:
        self.values: list[int] = []
        self.done = False

    @workflow.run
    async def run(self) -> list[int]:
        await workflow.wait_condition(lambda: self.done)
        return self.values

    @workflow.signal
    def add(self, value: int) -> None:
        self.values.append(value)

    @workflow.signal
    async def finish(self) -> None:
        await asyncio.sleep(0.1)
        self.done = True

    @workflow.query
    def current(self) -> list[int]:
        return self.values


@workflow.defn(name="Updates")
class Updates:
    """Its updates are signals here: see `reader.py`."""

    def __init__(self) -> None:
        self.value = 0
        self.done = False

    @workflow.run
    async def run(self) -> int:
        await workflow.wait_condition(lambda: self.done)
        return self.value

    @workflow.signal
    async def set(self, value: int) -> None:
        self.value = await echo(value)

    @workflow.signal
    def finish(self) -> None:
        self.done = True


@workflow.defn(name="Patched")
async def patched() -> str:
    if workflow.patched("p1"):
        new: str = await echo("new")
        return new
    return "old"


@workflow.defn(name="FailWf")
async def fails() -> None:
    raise ApplicationError("boom", {"a": 1}, type="Boom", non_retryable=True)


# Of the Python SDK ----------------------------------------------------------------------------------------------------


@workflow.defn(name="SayHelloWorkflow")
class SayHello:
    def __init__(self) -> None:
        self.finished = False

    @workflow.run
    async def run(self, options: dict[str, Any]) -> str:
        result = await say_hello(options["name"])
        if options["should_wait"]:
            await workflow.wait_condition(lambda: self.finished)
        return result

    @workflow.signal
    def finish(self) -> None:
        self.finished = True


@workflow.defn(name="SayHelloWorkflow")
async def say_hello_and_sleep(options: dict[str, Any]) -> str:
    """What the recorded one does on replay: one timer more."""
    result = await say_hello(options["name"])
    await asyncio.sleep(0.1)
    return result


@workflow.defn(name="SignalsActivitiesTimersUpdatesTracingWorkflow")
class Tracing:
    """Appends a label at each step of everything that runs side by side: the order of coroutines."""

    def __init__(self) -> None:
        self.labels: list[str] = []

    @workflow.run
    async def run(self) -> list[str]:
        tasks = [asyncio.create_task(self._timer()), asyncio.create_task(self._activity())]
        await asyncio.gather(*tasks)
        return self.labels

    async def _timer(self) -> None:
        self.labels.append("timer-sync")
        await asyncio.sleep(0.1)
        self.labels.append("timer-1")
        await workflow.wait_condition(lambda: True)
        self.labels.append("timer-2")

    async def _activity(self) -> None:
        self.labels.append("act-sync")
        await say_hello("Enchi")
        self.labels.append("act-1")
        await workflow.wait_condition(lambda: True)
        self.labels.append("act-2")

    async def _handle(self, label: str) -> None:
        self.labels.append(f"{label}-sync")
        resolved = asyncio.get_running_loop().create_future()
        resolved.set_result(None)
        await resolved
        self.labels.append(f"{label}-1")
        await workflow.wait_condition(lambda: True)
        self.labels.append(f"{label}-2")

    @workflow.signal
    async def dosig(self, name: str) -> None:
        await self._handle(f"sig-{name}")

    @workflow.signal
    async def doupdate(self, name: str) -> None:
        await self._handle(f"update-{name}")


@workflow.defn(name="ActivityAndSignalsWhileWorkflowDown")
class SignalsWhileDown:
    def __init__(self) -> None:
        self.labels: list[str] = []
        self.counter = 0

    @workflow.run
    async def run(self, task_queue: str) -> list[str]:
        self.labels.append("act-start")
        activity_task = asyncio.create_task(self._hello())
        await workflow.wait_condition(lambda: self.counter >= 2)
        self.labels.append(f"counter-{self.counter}")
        await activity_task
        self.labels.append("act-done")
        return self.labels

    async def _hello(self) -> str:
        return await say_hello("Enchi")

    @workflow.signal
    def dosig(self, name: str) -> None:
        self.labels.append(f"sig-{name}")
        self.counter += 1


@workflow.defn(name="UpdateCompletionAfterWorkflowReturn")
class UpdateAndReturn:
    """Its handler ends only after the run has returned."""

    def __init__(self) -> None:
        self.accepted = self.returned = False

    @workflow.run
    async def run(self) -> str:
        await workflow.wait_condition(lambda: self.accepted)
        self.returned = True
        return "workflow-result"

    @workflow.signal
    async def my_update(self) -> None:
        self.accepted = True
        await workflow.wait_condition(lambda: self.returned)


@workflow.defn(name="QuickActivityWorkflow")
async def quick_activities(seconds: float) -> None:
    ends = workflow.time() + seconds
    while workflow.time() < ends:
        await short_activity_async()


# Of other SDKs --------------------------------------------------------------------------------------------------------


@workflow.defn(name="SimpleWorkflow")
async def simple() -> None:
    await always_fail()


@workflow.defn(name="Workflow")
class StartRace:
    def __init__(self) -> None:
        self.resumed = False

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: self.resumed)
        await asyncio.gather(sleep_activity(), sleep_activity())
        try:
            await workflow.wait_condition(lambda: False)
        except asyncio.CancelledError:
            return

    @workflow.signal
    def resume(self, _: None) -> None:
        self.resumed = True
