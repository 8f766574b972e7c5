"""Small concurrent programs: how they are made, one workflow that runs any of them, and what each must give.

A program is a tree of JSON lists, `["gather", ["act", 1], ["sleep", 5]]`, so it travels as an argument. What it gives
never depends on who is faster: whoever wins a race, the result says only that there was one; a limit of time is either
much longer than all that can happen under faults, or surely passes, since what it limits waits for ever. So one result
is right, whatever dies meanwhile, and `expected` knows it without running anything.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final, TypeAlias

from hypothesis import strategies as st

from pledger import RetryPolicy, SearchAttributeKey, activity, workflow
from pledger.errors import ActivityError, ApplicationError
from pledger.testing import Caller, outside
from pledger.testing.journal import Then

#: ["kind", parameters or programs...]
Program: TypeAlias = list[Any]

#: Signals and updates that a program gets; it may wait for any number of them up to this.
CALLS: Final = 3
#: No program takes that long, whatever goes wrong.
LONG_S: Final = 1200.0

KEEP_TRYING = RetryPolicy(initial_interval=timedelta(milliseconds=100), backoff_coefficient=1.0, maximum_attempts=0)

# What is done ---------------------------------------------------------------------------------------------------------


@activity.defn(start_to_close_timeout=timedelta(minutes=2), retry_policy=KEEP_TRYING)
async def echo(number: int) -> int:
    await outside().apply(f"echo {number}")
    return number


@activity.defn(start_to_close_timeout=timedelta(minutes=2), retry_policy=KEEP_TRYING)
def echo_plainly(number: int) -> int:
    outside().apply_now(f"echo {number}")
    return number


@activity.defn(start_to_close_timeout=timedelta(minutes=2), retry_policy=KEEP_TRYING)
async def echo_at_last(number: int) -> int:
    """Fails twice."""
    if activity.info().attempt <= 2:
        raise ConnectionError("not yet")
    return number


@activity.defn(start_to_close_timeout=timedelta(minutes=2), retry_policy=KEEP_TRYING)
async def refuse(number: int) -> int:
    raise ApplicationError(f"{number} is refused", type="Refused", non_retryable=True)


ACTIVITIES: Final = [echo, echo_plainly, echo_at_last, refuse]

# Programs -------------------------------------------------------------------------------------------------------------

_NUMBERS = st.integers(0, 9)
_DELAYS = st.sampled_from([0, 1, 10, 500, 3000])  # ms
_LEAVES = (
    st.tuples(st.sampled_from(["act", "plain", "flaky", "fail"]), _NUMBERS)
    | st.tuples(st.just("sleep"), _DELAYS)
    | st.tuples(st.just("draw"))
    | st.tuples(st.just("say"), _NUMBERS)
    | st.tuples(st.just("signals"), st.integers(1, CALLS))
    | st.tuples(st.just("queue"), st.integers(1, 4))
    | st.tuples(st.just("noted"), _NUMBERS)
).map(list)


def _composed(inner: st.SearchStrategy[Program]) -> st.SearchStrategy[Program]:
    some = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        st.tuples(st.sampled_from(["sequence", "gather", "group", "race", "first", "each", "lock"]), some).map(
            lambda made: [made[0], *made[1]]
        ),
        st.tuples(st.sampled_from(["within", "caught", "shielded", "bounded", "phased"]), inner).map(list),
        st.tuples(st.sampled_from(["expiring", "stopped", "overdue", "scoped"]), inner, _DELAYS).map(list),
        st.tuples(st.just("kept"), inner, _DELAYS).map(list),
        st.tuples(st.just("finally"), inner, inner).map(list),
    )


PROGRAMS: Final = st.recursive(_LEAVES, _composed, max_leaves=8)


class RefusedError(Exception):
    """The program fails."""


def expected(program: Program) -> Any:
    """What the program gives. Raises RefusedError."""
    kind, *rest = program
    match kind:
        case "act" | "plain" | "flaky" | "noted" | "say":
            return rest[0]
        case "fail":
            raise RefusedError
        case "queue":
            return sum(range(rest[0]))
        case "sequence" | "gather" | "lock":
            return [expected(each) for each in rest]
        case "group":
            return _caught(["sequence", *rest])
        case "each":
            return sorted((_caught(each) for each in rest), key=repr)
        case "within" | "shielded" | "bounded" | "phased":
            return expected(rest[0])
        case "caught" | "kept":
            return _caught(rest[0])
        case "finally":
            expected(rest[1])
            return expected(rest[0])
    return kind  # nothing but that it was there: "race", "sleep", ...


def _caught(program: Program) -> Any:
    try:
        return expected(program)
    except RefusedError:
        return "refused"


# The workflow ---------------------------------------------------------------------------------------------------------


@workflow.defn
class Interpreter:
    """Runs one program."""

    def __init__(self) -> None:
        self.calls = 0
        self.said = 0

    @workflow.run
    async def run(self, program: Program) -> Any:
        return await self.caught(program)

    @workflow.signal
    def call(self, number: int) -> None:
        self.calls += 1

    @workflow.update
    async def ring(self, number: int) -> int:
        self.calls += 1
        return await echo(number)

    async def do(self, program: Program) -> Any:
        kind, *rest = program
        return await _DO[kind](self, *rest)

    async def caught(self, program: Program) -> Any:
        try:
            return await self.do(program)
        except ActivityError:
            return "refused"

    # Leaves

    async def sleep(self, delay_ms: int) -> str:
        await asyncio.sleep(delay_ms / 1000)
        return "sleep"

    async def draw(self) -> str:
        await asyncio.sleep(workflow.random().choice([0.0, 0.2, 1.0]))
        return "draw"

    async def say(self, number: int) -> int:
        """To whoever follows: counted, so that it can be seen that none is lost, and none said twice."""
        self.said += 1
        workflow.publish("said", self.said)
        return number

    async def signals(self, count: int) -> str:
        await workflow.wait_condition(lambda: self.calls >= count)
        return "signals"

    async def noted(self, number: int) -> int:
        """What it says of itself it sees at once, and after it has waited."""
        key = SearchAttributeKey.for_int(f"n{number}")
        workflow.upsert_search_attributes([key.value_set(number)])
        workflow.upsert_memo({key.name: [number]})
        await asyncio.sleep(0.1)
        assert workflow.memo()[key.name] == [number]
        return workflow.info().typed_search_attributes[key]

    async def queue(self, count: int) -> int:
        """One task feeds another one."""
        queue: asyncio.Queue[int] = asyncio.Queue(1)

        async def feed() -> None:
            for number in range(count):
                await queue.put(await echo(number))

        feeding = asyncio.create_task(feed())
        fed = [await queue.get() for _ in range(count)]
        await feeding
        return sum(fed)

    # Compositions

    async def sequence(self, *programs: Program) -> list[Any]:
        return [await self.do(each) for each in programs]

    async def gather(self, *programs: Program) -> list[Any]:
        return await asyncio.gather(*(self.do(each) for each in programs))

    async def group(self, *programs: Program) -> Any:
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self.do(each)) for each in programs]
        except* ActivityError:
            pass
        else:
            return [task.result() for task in tasks]
        return "refused"

    async def race(self, *programs: Program) -> str:
        tasks = [asyncio.create_task(self.caught(each)) for each in programs]
        _, others = await workflow.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        await _stop(*others)
        return "race"

    async def each(self, *programs: Program) -> list[Any]:
        results = [done async for done in workflow.as_completed([self.caught(each) for each in programs])]
        return sorted([await done for done in results], key=repr)

    async def lock(self, *programs: Program) -> list[Any]:
        lock = asyncio.Lock()

        async def alone(program: Program) -> Any:
            async with lock:
                return await self.do(program)

        return await asyncio.gather(*(alone(each) for each in programs))

    async def within(self, program: Program) -> Any:
        return await workflow.wait_for(self.do(program), LONG_S)

    async def expiring(self, program: Program, delay_ms: int) -> str:
        """A limit that passes, whatever the program has done by then."""
        try:
            async with asyncio.timeout(delay_ms / 1000):
                await asyncio.gather(self.caught(program), workflow.wait_condition(lambda: False))
        except TimeoutError:
            return "expiring"
        return "it did not expire"

    async def bounded(self, program: Program) -> Any:
        async with workflow.deadline(timedelta(seconds=LONG_S)):
            return await self.do(program)

    async def phased(self, program: Program) -> Any:
        async with workflow.phase("phased", owner="ada", deadline=timedelta(seconds=LONG_S), overdue="raise"):
            return await self.do(program)

    async def overdue(self, program: Program, delay_ms: int) -> str:
        """A deadline that passes, whatever the program has done by then."""
        try:
            async with workflow.deadline(timedelta(milliseconds=delay_ms)):
                task = asyncio.create_task(self.caught(program))
                await workflow.wait_condition(lambda: False, name="never")
        except TimeoutError:
            await asyncio.gather(task, return_exceptions=True)
            return "overdue"
        return "it was not overdue"

    async def scoped(self, program: Program, delay_ms: int) -> str:
        async with workflow.scope() as block:
            asyncio.get_running_loop().call_later(delay_ms / 1000, block.cancel)
            await asyncio.gather(self.caught(program), workflow.wait_condition(lambda: False))
        return "scoped" if block.cancelled else "it was not cancelled"

    async def kept(self, program: Program, delay_ms: int) -> Any:
        """Shielded against a deadline that has passed, or has not, when it ends."""
        found: list[Any] = []

        async def keep() -> None:
            found.append(await self.caught(program))

        with contextlib.suppress(TimeoutError):
            async with workflow.deadline(timedelta(milliseconds=delay_ms)):
                await workflow.shield(keep())
        return found[0]

    async def first(self, *programs: Program) -> str:
        await workflow.first_of(*(self.caught(each) for each in programs))
        return "first"

    async def stopped(self, program: Program, delay_ms: int) -> str:
        task = asyncio.create_task(self.caught(program))
        await asyncio.sleep(delay_ms / 1000)
        await _stop(task)
        return "stopped"

    async def shielded(self, program: Program) -> Any:
        """The one who waits gives up; what it waited for goes on."""
        task = asyncio.create_task(self.do(program))
        try:
            async with asyncio.timeout(0.3):
                return await asyncio.shield(task)
        except TimeoutError:
            return await task

    async def in_the_end(self, program: Program, clean_up: Program) -> Any:
        try:
            return await self.do(program)
        finally:
            await self.do(clean_up)


async def _stop(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


_DO: Final[dict[str, Callable[..., Awaitable[Any]]]] = {
    "act": lambda _, number: echo(number),
    "plain": lambda _, number: echo_plainly(number),
    "flaky": lambda _, number: echo_at_last(number),
    "fail": lambda _, number: refuse(number),
    "sleep": Interpreter.sleep,
    "draw": Interpreter.draw,
    "say": Interpreter.say,
    "signals": Interpreter.signals,
    "queue": Interpreter.queue,
    "noted": Interpreter.noted,
    "sequence": Interpreter.sequence,
    "gather": Interpreter.gather,
    "group": Interpreter.group,
    "race": Interpreter.race,
    "each": Interpreter.each,
    "lock": Interpreter.lock,
    "within": Interpreter.within,
    "caught": Interpreter.caught,
    "expiring": Interpreter.expiring,
    "stopped": Interpreter.stopped,
    "bounded": Interpreter.bounded,
    "phased": Interpreter.phased,
    "overdue": Interpreter.overdue,
    "scoped": Interpreter.scoped,
    "kept": Interpreter.kept,
    "first": Interpreter.first,
    "shielded": Interpreter.shielded,
    "finally": Interpreter.in_the_end,
}


#: How a client ends a run that is in its way, and how many seconds after its start.
ENDS: Final = st.tuples(st.sampled_from(["cancel", "terminate"]), st.sampled_from([0.0, 0.02, 0.2, 1.0, 3.0]))


def call_and_end(how: str, after_s: float) -> Then:
    """The calls, and in the midst of them the end."""

    async def end(caller: Caller) -> None:
        await asyncio.sleep(after_s)
        await (caller.cancel("enough") if how == "cancel" else caller.terminate("enough"))

    async def both(caller: Caller) -> None:
        await asyncio.gather(call(caller), end(caller))

    return both


async def call(caller: Caller) -> None:
    """The client's part: signals and updates, now and then."""
    for number in range(CALLS):
        if caller.dice.random() < 0.5:
            await caller.signal(Interpreter.call, number, message_id=f"call-{number}")
        else:
            await caller.update(Interpreter.ring, number, id=f"ring-{number}")
        await asyncio.sleep(caller.dice.random() * 3)
