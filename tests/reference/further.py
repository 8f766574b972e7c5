"""More reference workflows, for what `workflows.py` leaves out: each kind of time-out, retries that are sure to happen,
large values, context variables, async generators, the primitives of asyncio, a process of its own, a run that fails.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator
from datetime import timedelta

from pledger import Limit, Priority, SearchAttributeKey, activity, workflow
from pledger.errors import ActivityError, ApplicationError
from pledger.errors import TimeoutError as TimedOutError
from tests.reference import families, scoped
from tests.reference.activities import ONCE, QUICK, linger, plain_step, step

SECOND = timedelta(seconds=1)


@activity.defn(retry_policy=QUICK)
async def stumble(name: str) -> str:
    """Fails twice, whatever happens; its third attempt has the effect."""
    if activity.info().attempt <= 2:
        raise ConnectionError(f"{name}: not yet")
    return await step.fn(name)


@activity.defn(retry_policy=ONCE, start_to_close_timeout=SECOND)
async def slow(seconds: float) -> None:
    await asyncio.sleep(seconds)


@activity.defn(retry_policy=ONCE, heartbeat_timeout=SECOND, start_to_close_timeout=timedelta(minutes=1))
async def silent(seconds: float) -> None:
    """Never sends the heartbeat that it owes."""
    await asyncio.sleep(seconds)


@activity.defn(retry_policy=QUICK, schedule_to_close_timeout=timedelta(seconds=3))
async def hopeless(name: str) -> None:
    raise ConnectionError(f"{name}: never")


@activity.defn(retry_policy=ONCE, task_queue="nobody-serves-it", schedule_to_start_timeout=SECOND)
async def unattended() -> None:
    raise AssertionError("nobody serves its queue")


@activity.defn(retry_policy=QUICK)
async def measure(text: str) -> str:
    """A large value comes, and a large value goes."""
    await step.fn(f"measure {len(text)}")
    return text[::-1]


@activity.defn(retry_policy=QUICK)
async def fetch(page: int) -> list[int]:
    return list(range(page * 3, page * 3 + 3))


GATE = Limit("gate", concurrency=2)
DESK = Limit("desk", concurrency=1, key=lambda name: name.partition(" ")[0])


@activity.defn(retry_policy=QUICK, limits=[GATE, DESK])
async def serve(name: str) -> str:
    await asyncio.sleep(0.3)
    return await step.fn(name)


async def _kind(call: object) -> str:
    """How an activity timed out."""
    try:
        await call  # type: ignore[misc]
    except ActivityError as error:
        cause = error.__cause__
        return cause.kind if isinstance(cause, TimedOutError) else type(cause).__name__
    return "none"


@workflow.defn
async def stumbling(name: str) -> str:
    return await stumble(name)


@workflow.defn
async def timing_out() -> list[str]:
    """Each of the four time-outs, all at once."""
    return list(
        await asyncio.gather(_kind(slow(30.0)), _kind(silent(30.0)), _kind(hopeless("all of it")), _kind(unattended()))
    )


@workflow.defn
async def bulky(length: int) -> int:
    """Values over many pages of a database, as input, result, and of the workflow's own."""
    text = "".join(chr(97 + n % 26) for n in range(length))
    back = await measure(text)
    assert back == text[::-1]
    return len(back)


@activity.defn(retry_policy=QUICK)
async def reply(transcript: list[dict[str, str]]) -> dict[str, str]:
    """A message of a few pages, on all that was said before."""
    done = await step.fn(f"reply {len(transcript)}")
    return {"role": "model", "content": f"{done.rpartition('-')[0]}: " + "as was said before.\n" * 300}


@workflow.defn
class Conversing:
    """A transcript that grows at every call, and is the argument of each; what is said to it may be long too."""

    def __init__(self) -> None:
        self.transcript: list[dict[str, str]] = []

    @workflow.run
    async def run(self, said: int, calls: int) -> list[str]:
        await workflow.wait_condition(lambda: len(self.transcript) >= said)
        for _ in range(calls):
            self.transcript.append(await reply(self.transcript))
        return [each["content"].partition(":")[0] for each in self.transcript]

    @workflow.signal
    def say(self, content: str) -> None:
        self.transcript.append({"role": "user", "content": content})


_who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


@workflow.defn
async def in_context(width: int) -> list[str]:
    """Each task has what it has set, over every wait."""

    async def act(n: int) -> str:
        _who.set(f"task {n}")
        await step(f"for {_who.get()}")
        await asyncio.sleep(n + 1)
        return _who.get()

    _who.set("the run")
    return [*await asyncio.gather(*map(act, range(width))), _who.get()]


@workflow.defn
async def streaming(pages: int) -> int:
    """An async generator over activities, left in the midst of a page."""

    async def rows() -> AsyncIterator[int]:
        try:
            for page in range(pages):
                for row in await fetch(page):
                    yield row
        finally:
            await step("closed the source")

    total, source = 0, rows()
    async for row in source:
        if row == pages * 3 - 2:
            break
        total += row
    await source.aclose()  # type: ignore[attr-defined]
    return total


@workflow.defn
async def workshop(jobs: int) -> list[str]:
    """Two workers at a queue, with a lock, an event and a semaphore."""
    queue: asyncio.Queue[int] = asyncio.Queue()
    opened, lock, seats, done = asyncio.Event(), asyncio.Lock(), asyncio.Semaphore(2), []

    async def work() -> None:
        await opened.wait()
        while True:
            job = await queue.get()
            async with seats, lock:
                await plain_step(f"job {job}")
                done.append(f"job {job}")
            queue.task_done()

    workers = [asyncio.create_task(work()) for _ in range(2)]
    for job in range(jobs):
        queue.put_nowait(job)
    await asyncio.sleep(0.5)
    opened.set()
    await queue.join()
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    return done


@workflow.defn
async def rationed(width: int) -> list[str]:
    """Two at a time over all workers, and one of each of three keys; tenants take turns, and the last one is urgent."""
    served = [
        workflow.start_activity(
            serve, f"desk-{n % 3} {n}", priority=Priority(3 if n < width - 1 else 1, fairness_key=f"tenant-{n % 2}")
        )
        for n in range(width)
    ]
    return list(await asyncio.gather(*served))


@workflow.defn
async def one_by_one(width: int) -> list[str]:
    """Taken as they complete, the shortest first."""
    turns = [_after(width - n, f"turn {n}") for n in range(width)]
    return [await each async for each in workflow.as_completed(turns)]


async def _after(seconds: float, name: str) -> str:
    await asyncio.sleep(seconds)
    await step(name)
    return name


@workflow.defn
async def failing(name: str) -> str:
    """Fails on purpose, after an effect."""
    await step(name)
    raise ApplicationError(f"{name} cannot be", "of two kinds", type="Impossible")


@workflow.defn
async def endless(name: str) -> str:
    """What starts it says for how long."""
    await step(name)
    return await linger(590.0)


@workflow.defn
class Ledgered:
    """Signals that are there before its first step, queries between its steps."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    @workflow.run
    async def run(self, wanted: int) -> list[str]:
        await step("open")
        await workflow.wait_condition(lambda: len(self.lines) >= wanted)
        await workflow.wait_condition(workflow.all_handlers_finished)
        await step(f"close after {wanted}")
        return self.lines

    @workflow.signal
    async def enter(self, line: str) -> None:
        await step(f"enter {line}")
        self.lines.append(line)

    @workflow.query
    def balance(self) -> int:
        return len(self.lines)


@workflow.defn
class Till:
    """Sells one thing at a time, and refuses who comes meanwhile: what is refused now it would take later."""

    def __init__(self) -> None:
        self.sold: dict[str, int] = {}
        self.is_busy = False

    @workflow.run
    async def run(self, wanted: int) -> list[str]:
        await step("open")
        await workflow.wait_condition(lambda: len(self.sold) >= wanted)
        await workflow.wait_condition(workflow.all_handlers_finished)
        return sorted(self.sold)

    @workflow.update
    async def sell(self, what: str) -> int:
        if what not in self.sold:
            self.is_busy = True
            await step(f"sell {what}")
            self.is_busy = False
            self.sold[what] = len(self.sold) + 1
        return self.sold[what]

    @sell.validator
    def _is_free(self, what: str) -> None:
        if self.is_busy:
            raise ApplicationError(f"{what} has to wait", type="Busy")


ACTIVITIES = [stumble, slow, silent, hopeless, unattended, measure, reply, fetch, serve, *scoped.ACTIVITIES]
LAST = SearchAttributeKey.for_keyword("last")
DONE = SearchAttributeKey.for_int("done")
NAMES = SearchAttributeKey.for_keyword_list("names")


@workflow.defn
async def labelled(names: list[str]) -> list[object]:
    """Says what it is at, in lists and for people; also in its last transition."""
    before = workflow.info().typed_search_attributes.get(DONE)
    for number, name in enumerate(names, 1):
        workflow.upsert_search_attributes([LAST.value_set(name), NAMES.value_set(names[:number])])
        workflow.upsert_memo({name: [number], "now": name})
        await step(name)
        workflow.upsert_search_attributes([DONE.value_set(number)])
        await asyncio.sleep(1)
    workflow.upsert_search_attributes([LAST.value_unset()])
    workflow.upsert_memo({"now": None})
    found = {pair.key.name: pair.value for pair in workflow.info().typed_search_attributes}
    return [before, found["done"], sorted(found), sorted(workflow.memo())]


WORKFLOWS = [
    stumbling,
    timing_out,
    bulky,
    Conversing,
    in_context,
    streaming,
    workshop,
    rationed,
    one_by_one,
    failing,
    endless,
    Ledgered,
    *scoped.WORKFLOWS,
    *families.WORKFLOWS,
    Till,
    labelled,
]
