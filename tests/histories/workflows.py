"""The workflows of the golden histories, one per shipped behaviour.

What is recorded with them is replayed for ever, so what they ask for may not change; a new behaviour is a new workflow.
They wait for no outside world: what an activity does is written down in it, so that a recording can be made again.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from pledger import RetryPolicy, SearchAttributeKey, activity, workflow
from pledger.errors import ActivityError, ApplicationError

# No jitter: the times in a recording are the policy's own.
THRICE = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_attempts=3, jitter=0.0)


# Activities -----------------------------------------------------------------------------------------------------------


@activity.defn
async def step(name: str) -> str:
    return f"did {name}"


@activity.defn
async def take_s(name: str, seconds: float) -> str:
    """A step that takes its time, and may be cancelled."""
    await asyncio.sleep(seconds)
    return f"did {name}"


@activity.defn(retry_policy=THRICE)
async def unreachable(name: str) -> str:
    raise ConnectionError(f"{name} does not answer")


@activity.defn
async def refuse(name: str) -> str:
    """Fails for good, with details and the reason for the reason."""
    try:
        raise ConnectionError(f"no way to {name}")
    except ConnectionError as unreached:
        reason = ValueError(f"{name} cannot be checked")
        reason.__cause__ = unreached
        raise ApplicationError(f"{name} is refused", {"code": 7}, type="Refused", non_retryable=True) from reason


@dataclass(frozen=True)
class Parcel:
    number: uuid.UUID
    due: datetime
    price: Decimal
    label: bytes
    takes: timedelta
    notes: dict[str, list[int | None]]


@activity.defn
async def forward(parcel: Parcel) -> Parcel:
    return parcel


ACTIVITIES: list[Any] = [step, take_s, unreachable, refuse, forward]


# Steps ----------------------------------------------------------------------------------------------------------------


@workflow.defn
async def sequence(steps: int) -> list[str]:
    return [await step(f"step {n}") for n in range(steps)]


@workflow.defn
async def fan_out(width: int) -> list[str]:
    """They end in another order than they started in."""
    return await asyncio.gather(*(take_s(f"part {n}", float(width - n)) for n in range(width)))


@workflow.defn
async def equal_steps(width: int) -> list[str]:
    """Nothing but the asking task tells them apart; then each goes on alone."""

    async def twice() -> str:
        await step("the same")
        return await step("the same again")

    return await asyncio.gather(*(twice() for _ in range(width)))


@workflow.defn
async def first_of_several() -> list[str]:
    """The first one by `wait`, the others as they complete."""
    parts: list[workflow.ActivityHandle[str]] = [
        workflow.start_activity(take_s, f"part {n}", seconds) for n, seconds in enumerate((0.3, 0.1, 0.2))
    ]
    done, pending = await workflow.wait(parts, return_when="FIRST_COMPLETED")
    others = [await step(f"after '{one.result()}'") async for one in workflow.as_completed(pending)]
    return [one.result() for one in done] + others


@workflow.defn
async def queue_and_lock(items: int) -> list[str]:
    """Two consumers of one queue, one at a time at the till."""
    queue: asyncio.Queue[int] = asyncio.Queue()
    till = asyncio.Lock()
    served: list[str] = []

    async def serve(name: str) -> None:
        while not queue.empty():
            item = await queue.get()
            await step(f"{name} fetches {item}")
            async with till:
                served.append(await step(f"{name} sells {item}"))

    for item in range(items):
        queue.put_nowait(item)
    await asyncio.gather(serve("ann"), serve("bob"))
    return served


@workflow.defn
async def typed_payloads(parcel: Parcel) -> Parcel:
    return await forward(parcel)


@workflow.defn
async def draws() -> str:
    """Random values and ids, in two tasks and by name."""

    async def draw(name: str) -> str:
        return await step(f"{name} {workflow.uuid4()} {workflow.random().randrange(1000)}")

    both = await asyncio.gather(draw("one"), draw("two"))
    return f"{both} {workflow.uuid4('named')}"


# Time -----------------------------------------------------------------------------------------------------------------


@workflow.defn
async def timers() -> float:
    """One alone, then several at once."""
    began = workflow.time()
    await workflow.sleep(timedelta(minutes=5))
    await asyncio.gather(*(asyncio.sleep(seconds) for seconds in (3, 1, 2, 1)))
    return workflow.time() - began


@workflow.defn
async def cancelled_timer() -> str:
    """The step is faster than its time limit."""
    return await workflow.wait_for(step("in time"), timeout=60)


@workflow.defn
async def activity_cancelled() -> list[str]:
    """One over its time limit, whose end nobody waits for, and one that is called off and waited for."""
    ended: list[str] = []
    try:
        await workflow.wait_for(take_s("too slow", 60.0), timeout=1)
    except TimeoutError:
        ended.append(await step("instead"))
    handle: workflow.ActivityHandle[str] = workflow.start_activity(take_s, "called off", 60.0, cancellation_type="wait")
    await asyncio.sleep(1)
    handle.cancel()
    try:
        await handle
    except asyncio.CancelledError:
        ended.append("called off")
    return ended


@workflow.defn(deadline=timedelta(seconds=10))
async def timed_out() -> str:
    await step("begin")
    await asyncio.sleep(3600)
    return "never"


# Messages -------------------------------------------------------------------------------------------------------------


@workflow.defn
class Basket:
    def __init__(self) -> None:
        self.items: list[str] = []

    @workflow.run
    async def run(self, wanted: int) -> list[str]:
        await workflow.wait_condition(lambda: len(self.items) >= wanted)
        return [await step(item) for item in self.items]

    @workflow.signal
    def add(self, item: str) -> None:
        self.items.append(item)


@workflow.defn
class Approval:
    def __init__(self) -> None:
        self.answer: str | None = None

    @workflow.run
    async def run(self) -> str:
        try:
            await workflow.wait_condition(lambda: self.answer is not None, timeout=timedelta(minutes=5))
        except TimeoutError:
            return await step("nobody answered")
        return await step(f"the answer is {self.answer}")

    @workflow.signal
    def decide(self, answer: str) -> None:
        self.answer = answer


@workflow.defn
class Errands:
    """Its signals act by themselves, beside the run method."""

    def __init__(self) -> None:
        self.done: list[str] = []

    @workflow.run
    async def run(self, wanted: int) -> list[str]:
        await step("open")
        await workflow.wait_condition(lambda: len(self.done) >= wanted)
        return self.done

    @workflow.signal
    async def send(self, errand: str, seconds: float) -> None:
        self.done.append(await take_s(errand, seconds))


@workflow.defn
class Ballot:
    """Takes votes as updates: counted at once, by errand, or refused by what counts them."""

    def __init__(self) -> None:
        self.votes: list[str] = []

    @workflow.run
    async def run(self, wanted: int) -> list[str]:
        await workflow.wait_condition(lambda: len(self.votes) >= wanted)
        await workflow.wait_condition(workflow.all_handlers_finished)
        return self.votes

    @workflow.update
    def vote(self, name: str) -> int:
        self.votes.append(name)
        return len(self.votes)

    @vote.validator
    def _check_vote(self, name: str) -> None:
        if name in self.votes:
            raise ValueError(f"{name} has voted")

    @workflow.update
    async def vote_by_mail(self, name: str, seconds: float) -> int:
        self.votes.append(await take_s(name, seconds))
        return len(self.votes)

    @workflow.update(dynamic=True)
    def other(self, name: str, args: Sequence[str]) -> str:
        raise ApplicationError(f"{name} of {args[0]} does not count", type="Invalid")


@workflow.defn
async def handlers_set_later(wanted: int) -> list[str]:
    got: list[str] = []
    await take_s("wait", 20.0)
    workflow.set_signal_handler("note", got.append)
    await workflow.wait_condition(lambda: len(got) >= wanted)
    workflow.set_dynamic_signal_handler(lambda name, args: got.append(f"{name} {args[0]}"))
    return got


@workflow.defn
class LastErrands:
    """Ends after one errand, but not before those that are under way."""

    def __init__(self) -> None:
        self.done: list[str] = []

    @workflow.run
    async def run(self) -> list[str]:
        await workflow.wait_condition(lambda: bool(self.done))
        await workflow.wait_condition(workflow.all_handlers_finished)
        return self.done

    @workflow.signal
    async def send(self, errand: str, seconds: float) -> None:
        self.done.append(await take_s(errand, seconds))


# Ends -----------------------------------------------------------------------------------------------------------------


@workflow.defn
async def retries_exhausted() -> str:
    try:
        return await unreachable("the bank")
    except ActivityError as error:
        return await step(f"without it, after {error.attempt} attempts: {error.retry_state}")


@workflow.defn
async def failure() -> str:
    """Fails with the whole chain of causes below it."""
    try:
        return await refuse("the courier")
    except ActivityError as error:
        raise ApplicationError("the order cannot be sent", "A-1", type="NotSent") from error


@workflow.defn
async def run_cancelled() -> str:
    """Cleans up behind a shield, and ends as cancelled."""
    await step("reserve")
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        await asyncio.shield(step("release"))
        raise
    return "never"


@workflow.defn
async def cancelled_finishes() -> str:
    """Is asked to stop, and says no."""
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        return await step("finish anyway")
    return "never"


@workflow.defn
async def task_group_abort() -> str:
    """One part fails; the group cancels a timer, an activity and a task that has just begun to clean up."""

    async def careful() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await step("sweep")

    async def failing() -> None:
        await step("begin")
        await refuse("the rest")

    told = "nothing failed"
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(careful())
            group.create_task(take_s("slow", 60.0))
            group.create_task(asyncio.sleep(3600))
            group.create_task(failing())
    except* ActivityError as failed:
        told = ", ".join(str(one.__cause__) for one in failed.exceptions)
    return told


# Changed code: the same workflow before, during and after a change ----------------------------------------------------


@workflow.defn(name="changed")
async def before_change() -> list[str]:
    return [await step("reserve"), await step("charge")]


@workflow.defn(name="changed")
async def with_patch() -> list[str]:
    done = [await step("reserve")]
    if workflow.patched("check-card"):
        done.append(await step("check card"))
    return [*done, await step("charge")]


@workflow.defn(name="changed")
async def after_change() -> list[str]:
    done = [await step("reserve")]
    workflow.deprecate_patch("check-card")
    return [*done, await step("check card"), await step("charge")]


@workflow.defn(name="changed")
async def patch_removed() -> list[str]:
    done = [await step("reserve")]
    return [*done, await step("check card"), await step("charge")]


PARCEL = Parcel(
    number=uuid.UUID("0c9f3a52-7d5e-4b8a-9a52-2f6f1f0b7a11"),
    due=datetime.fromisoformat("2031-03-30T01:30:00.000250+01:00"),
    price=Decimal("19.90"),
    label=b"\x00to: \xff",
    takes=timedelta(days=2, microseconds=1),
    notes={"grüße": [1, None, 2**53 + 1]},
)


# Tasks and what waits for them ----------------------------------------------------------------------------------------

_customer = contextvars.ContextVar("customer", default="nobody")


@workflow.defn
async def activities_as_tasks(width: int) -> list[str]:
    """A call of an activity is handed to `create_task` and to a task group like any other call."""
    first = asyncio.create_task(step("the first"))
    async with asyncio.TaskGroup() as group:
        others = [group.create_task(take_s(f"part {n}", float(width - n))) for n in range(width)]
    return [await first, *(other.result() for other in others)]


@workflow.defn
async def sets_of_tasks() -> list[str]:
    """What `asyncio.wait` gives are sets; the order in which they are gone through is the same everywhere."""
    told: list[str] = []
    pending = {asyncio.create_task(step(name), name=name) for name in "abcdefgh"}
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        told += [await step(f"after {task.get_name()}") for task in done]
    pairs = {asyncio.gather(step(one), step(other)): one + other for one, other in ("ab", "cd", "ef", "gh")}
    finished, _ = await asyncio.wait(pairs)
    return told + [await step(f"after {pairs[pair]}") for pair in finished]


@workflow.defn
async def limits_of_time() -> list[str]:
    """`wait_for` and timeouts, in time and too late, side by side."""

    async def within(seconds: float, name: str, takes: float) -> str:
        try:
            return await workflow.wait_for(take_s(name, takes), seconds)
        except TimeoutError:
            return await step(f"instead of {name}")

    told = list(await asyncio.gather(within(5, "quick", 1), within(1, "slow", 60), within(5, "also quick", 2)))
    try:
        async with asyncio.timeout(3):
            await asyncio.sleep(60)
    except TimeoutError:
        told.append(await step("after a timeout"))
    return told


@workflow.defn
async def context_variables() -> list[str]:
    """They are the task's own, last over waits, and are inherited by the tasks it starts."""

    async def tell() -> str:
        await asyncio.sleep(1)
        return await step(f"for {_customer.get()}")

    early = asyncio.create_task(tell())
    _customer.set("Ada")
    await asyncio.sleep(2)
    return [await early, await tell(), await asyncio.create_task(tell())]


@workflow.defn
async def async_generator() -> list[str]:
    async def parts() -> AsyncIterator[str]:
        try:
            for n in range(3):
                yield await step(f"part {n}")
        finally:
            await step("put away")

    told = []
    async with contextlib.aclosing(parts()) as found:
        async for part in found:
            told.append(part)
            if len(told) == 2:
                break
    return told


# Handlers -------------------------------------------------------------------------------------------------------------


@workflow.defn
class Counter:
    """Its state is made from the arguments before the first signal is handled."""

    @workflow.init
    def __init__(self, start: int) -> None:
        self.count = start
        self.noted: list[str] = []

    @workflow.run
    async def run(self, start: int) -> list[str]:
        await workflow.wait_condition(lambda: self.count >= start + 3)
        return [*self.noted, f"from {start} to {self.count}"]

    @workflow.signal
    def add(self, number: int) -> None:
        self.count += number
        self.noted.append(f"{number} by {workflow.uuid4()}")

    @workflow.signal
    async def give_up(self, why: str) -> None:
        await step(f"note {why}")
        raise ApplicationError(why, type="GivenUp")


@workflow.defn
async def shielded_clean_up() -> str:
    """Cancelled, and once more while it cleans up."""
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        clean_up = asyncio.ensure_future(take_s("clean up", 30.0))
        while not clean_up.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(clean_up)
        raise
    return "never"


# Chains ---------------------------------------------------------------------------------------------------------------


@workflow.defn(owner="logistics", deadline=timedelta(hours=1))
class Rounds:
    """Takes two messages in each of its runs; a draw differs from run to run, a patch does not last."""

    def __init__(self) -> None:
        self.got: list[str] = []

    @workflow.run
    async def run(self, rounds: int, before: list[str]) -> list[str]:
        workflow.patched("rounds")
        await workflow.wait_condition(lambda: len(self.got) >= 2)
        got = [*before, *self.got, await step(f"{workflow.info().segment}: {workflow.uuid4()}")]
        if workflow.info().segment < rounds:
            workflow.continue_as_new(rounds, got, deadline=timedelta(minutes=10))
        return got

    @workflow.signal
    def take(self, name: str) -> None:
        self.got.append(name)


@workflow.defn
async def checkpointed(rounds: int, done: list[str]) -> list[str]:
    """It is told how long its history is, and rolls over at a checkpoint."""
    while rounds:
        info = workflow.info()
        done = [*done, await step(f"{info.history_length} events, {info.is_continue_as_new_suggested()}")]
        rounds -= 1
        workflow.checkpoint(rounds, done)
    return done


AMOUNT = SearchAttributeKey.for_int("amount")
REGIONS = SearchAttributeKey.for_keyword_list("regions")
DUE = SearchAttributeKey.for_datetime("due")


@workflow.defn
async def labels(amount: int) -> dict[str, Any]:
    """Attributes and a memo, changed several times in one transition and in several."""
    workflow.upsert_search_attributes([AMOUNT.value_set(amount), REGIONS.value_set(["eu", "us"])])
    workflow.upsert_search_attributes([AMOUNT.value_set(amount + 1), DUE.value_set(workflow.now())])
    workflow.upsert_memo({"note": {"amount": Decimal("1.50")}, "step": 1})
    await asyncio.sleep(1)
    workflow.upsert_search_attributes([REGIONS.value_unset()])
    workflow.upsert_memo({"note": None, "step": 2})
    await asyncio.sleep(1)
    workflow.upsert_memo({"step": 3})
    found = workflow.info().typed_search_attributes
    return {"amount": found.get(AMOUNT), "names": [pair.key.name for pair in found], "memo": workflow.memo()}


@workflow.defn
async def publishing(rounds: int) -> int:
    """What is published leaves no trace: the history is that of the steps."""
    for number in range(rounds):
        workflow.publish("progress", {"done": number, "of": rounds})
        await step(f"round {number}")
    workflow.publish("progress", "done")
    return rounds
