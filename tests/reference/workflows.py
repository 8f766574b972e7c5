"""Reference workflows: between them they use every feature.

Each is small, and right under any fault: whatever happens to its workers, it must end as its case in `cases.py` says.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from pledger import workflow
from pledger.errors import ActivityError, CancelledError
from tests.reference.activities import (
    count_up,
    distant,
    flaky,
    grumble,
    hasty,
    linger,
    once,
    plain_step,
    refuse,
    step,
    undo,
    unheard,
)


@workflow.defn
async def sequence(steps: int) -> list[str]:
    return [await step(f"step {n}") for n in range(steps)]


@workflow.defn
async def fan_out(width: int) -> int:
    receipts = await asyncio.gather(*(step(f"part {n}") for n in range(width)))
    return len(set(receipts))


@workflow.defn
async def plain_steps(steps: int) -> int:
    for n in range(steps):
        await plain_step(f"plain {n}")
    return steps


@workflow.defn
async def sleeper(naps: list[float]) -> float:
    """One after the other, then all at once."""
    began = workflow.time()
    for nap in naps:
        await asyncio.sleep(nap)
    await asyncio.gather(*(asyncio.sleep(nap) for nap in naps))
    return workflow.time() - began


@workflow.defn
async def race(limit: float) -> str:
    """A timer against an activity: the loser is cancelled."""
    try:
        return await workflow.wait_for(linger(2.0), timeout=limit)
    except TimeoutError:
        return await step("after the time-out")


@workflow.defn
class Collector:
    """Takes messages until it has them all."""

    def __init__(self) -> None:
        self.got: list[str] = []

    @workflow.run
    async def run(self, wanted: int) -> list[str]:
        await workflow.wait_condition(lambda: len(self.got) >= wanted)
        await step(f"collected {wanted}")
        return self.got

    @workflow.signal
    def take(self, text: str) -> None:
        self.got.append(text)

    @workflow.query
    def count(self) -> int:
        return len(self.got)


@workflow.defn
class Approval:
    """Waits for somebody, but not for ever."""

    def __init__(self) -> None:
        self.answer: str | None = None

    @workflow.run
    async def run(self, patience_s: float) -> str:
        try:
            await workflow.wait_condition(lambda: self.answer is not None, timeout=patience_s)
        except TimeoutError:
            await step("escalated")
            return "nobody answered"
        await step(f"carried out {self.answer}")
        return str(self.answer)

    @workflow.signal
    def decide(self, answer: str) -> None:
        self.answer = self.answer or answer


@workflow.defn
class Handlers:
    """Signals whose handlers act themselves, beside the run method."""

    def __init__(self) -> None:
        self.receipts: list[str] = []

    @workflow.run
    async def run(self, wanted: int) -> int:
        await step("begin")
        await workflow.wait_condition(lambda: len(self.receipts) >= wanted)
        return len(self.receipts)

    @workflow.signal
    async def act(self, name: str) -> None:
        self.receipts.append(await step(f"act {name}"))


@workflow.defn
async def cancellable(length_s: float) -> str:
    """Cleans up behind a shield when it is cancelled."""
    await step("reserve")
    try:
        await linger(length_s)
        await asyncio.sleep(length_s)
    except asyncio.CancelledError:
        await asyncio.shield(undo("reserve"))
        raise
    return "done"


@workflow.defn
async def tidying(length_s: float) -> str:
    """Cleans up whatever ends it; leaving memory is no end."""
    await step("untidy")
    try:
        await asyncio.sleep(length_s)
    finally:
        await undo("untidy")
    return "tidy"


@workflow.defn
async def stubborn(length_s: float) -> str:
    """Is cancelled, and finishes all the same."""
    try:
        await asyncio.sleep(length_s)
    except asyncio.CancelledError:
        return await step("finish anyway")
    return "undisturbed"


@workflow.defn
async def retrying(name: str) -> str:
    """Three attempts, then another way."""
    try:
        return await flaky(name)
    except ActivityError:
        return await step(f"instead of {name}")


@workflow.defn
async def at_most_once(times: int) -> list[str]:
    """Effects that must never be repeated: what cannot be known stays unknown."""
    outcomes: list[str] = []
    for n in range(times):
        try:
            outcomes.append(await once(f"single {n}"))
        except ActivityError as error:
            outcomes.append(type(error.__cause__).__name__)
    return outcomes


@workflow.defn
async def hurried(name: str) -> str:
    """Attempts that time out are tried again, until all the time there was is over."""
    try:
        return await workflow.execute_activity(hasty, name, schedule_to_close_timeout=timedelta(seconds=40))
    except ActivityError as error:
        return f"gave up: {type(error.__cause__).__name__}"


@workflow.defn
async def beating(to: int) -> int:
    return await count_up(to)


@workflow.defn
async def grouped(width: int) -> str:
    """One part fails for good; the group cancels the others."""
    failures = 0
    try:
        async with asyncio.TaskGroup() as group:
            for n in range(width):
                group.create_task(_part(n, width))
    except* ActivityError as failed:
        failures = len(failed.exceptions)
    return f"{failures} failed"


async def _part(n: int, width: int) -> None:
    await step(f"part {n}")
    if n == width - 1:
        await refuse(f"part {n}")
    await asyncio.sleep(1)


@workflow.defn
async def patched(name: str) -> str:
    if workflow.patched("second-step"):
        await step(f"new {name}")
    return await step(f"old {name}")


@workflow.defn
async def drawing(times: int) -> list[str]:
    """Ids and numbers, the same on every replay."""
    return [await step(f"{workflow.uuid4()} {workflow.random().randrange(100)}") for _ in range(times)]


@workflow.defn(deadline=timedelta(seconds=20))
async def doomed(name: str) -> str:
    """Its own deadline ends it."""
    await step(name)
    await asyncio.sleep(3600)
    return "never"


@workflow.defn
async def abandoning(name: str) -> str:
    """Tells an activity to stop and waits until it has."""
    handle = workflow.start_activity(linger, 60.0, cancellation_type="wait")
    await asyncio.sleep(1.5)
    handle.cancel()
    try:
        await handle
    except asyncio.CancelledError:
        return await step(f"cancelled {name}")
    except ActivityError:
        return await step(f"lost {name}")  # it died with its worker, and nobody knows
    return "too late"


@workflow.defn
async def giving_up(after_s: float) -> list[str]:
    """Cancels activities that fail again and again, wherever their attempts are: here, elsewhere, or in no queue that
    anybody serves. Each has its verdict."""
    places = [(None, True), (None, False), ("elsewhere", True), ("elsewhere", False), ("nobody-serves-it", False)]
    handles = [workflow.start_activity(grumble, beats, task_queue=queue) for queue, beats in places]
    await asyncio.sleep(after_s)
    for handle in handles:
        handle.cancel()
    found = await asyncio.gather(*handles, return_exceptions=True)
    return [type(each).__name__ for each in found]


@workflow.defn
async def across_queues(steps: int) -> list[str]:
    """Steps on two queues, in turn and at once."""
    receipts = [await distant("first"), await step("second")]
    return receipts + list(await asyncio.gather(*(distant(f"far {n}") for n in range(steps)), step("near")))


@workflow.defn
async def waiting_in_vain(name: str) -> str:
    """Nobody takes the activity, and the queue lets go of it."""
    try:
        return await unheard(name)
    except ActivityError as error:
        return await step(f"unheard: {type(error.__cause__).__name__}")


@workflow.defn
async def compensating(steps: int) -> str:
    """A saga by hand: what was done is undone in reverse order."""
    done: list[str] = []
    try:
        for n in range(steps):
            await step(f"do {n}")
            done.append(f"do {n}")
        await refuse("the pivot")
    except (ActivityError, CancelledError):
        for name in reversed(done):
            await undo(name)
        return f"undone {len(done)}"
    return "done"


WORKFLOWS = [
    sequence,
    fan_out,
    plain_steps,
    sleeper,
    race,
    Collector,
    Approval,
    Handlers,
    cancellable,
    tidying,
    stubborn,
    retrying,
    at_most_once,
    hurried,
    beating,
    grouped,
    patched,
    drawing,
    doomed,
    abandoning,
    giving_up,
    across_queues,
    waiting_in_vain,
    compensating,
]
