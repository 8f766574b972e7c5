"""State-based patterns: what may happen depends on where the case is, and on who else is at work on it."""

import asyncio
from datetime import timedelta

from examples.patterns.catalogue.pattern import Pattern, Run, send
from examples.patterns.catalogue.tasks import task
from pledger import workflow


@workflow.defn
class DeferredChoice:
    def __init__(self) -> None:
        self.answer = ""

    @workflow.run
    async def run(self) -> str:
        race = await workflow.first_of(
            answer=workflow.wait_condition(lambda: bool(self.answer)), silence=workflow.sleep(timedelta(days=3))
        )
        return await task(f"act on: {self.answer}" if race.winner.name == "answer" else "remind")

    @workflow.signal
    def answered(self, answer: str) -> None:
        self.answer = answer


@workflow.defn
async def interleaved_parallel_routing() -> list[str]:
    told: list[str] = []
    one_at_a_time = asyncio.Lock()

    async def course(*names: str) -> None:
        for name in names:
            async with one_at_a_time:
                told.append(await task(name))

    await asyncio.gather(course("draw blood", "read blood"), course("X-ray", "read X-ray"))
    return told


@workflow.defn
class Milestone:
    """Its address can be changed until the order is packed, and not after."""

    def __init__(self) -> None:
        self.address = "home"
        self.is_packed = False
        self.is_sent = False

    @workflow.run
    async def run(self) -> str:
        await workflow.wait_condition(lambda: self.is_sent)
        return await task(f"sent to {self.address}")

    @workflow.signal
    def move(self, address: str) -> None:
        if not self.is_packed:
            self.address = address

    @workflow.signal
    def packed(self) -> None:
        self.is_packed = True

    @workflow.signal
    def sent(self) -> None:
        self.is_sent = True


@workflow.defn
async def critical_section() -> list[str]:
    told: list[str] = []
    counter = asyncio.Lock()

    async def customer(name: str) -> None:
        async with counter:
            told.append(await task(f"{name} pays"))
            told.append(await task(f"{name} is given change"))

    await asyncio.gather(customer("Ada"), customer("Bob"))
    return told


@workflow.defn
class InterleavedRouting:
    """Each once, one at a time, in the order that people choose."""

    def __init__(self) -> None:
        self.open = ["eyes", "ears", "teeth"]
        self.chosen: list[str] = []

    @workflow.run
    async def run(self) -> list[str]:
        told = []
        while self.open or self.chosen:
            await workflow.wait_condition(lambda: bool(self.chosen))
            told.append(await task(self.chosen.pop(0)))
        return told

    @workflow.signal
    def choose(self, name: str) -> None:
        if name in self.open:
            self.open.remove(name)
            self.chosen.append(name)


async def say_yes(run: Run) -> None:
    await send(run, DeferredChoice.answered, "yes")


async def move_before_and_after(run: Run) -> None:
    await send(run, Milestone.move, "work")
    await send(run, Milestone.packed)
    await send(run, Milestone.move, "the moon")
    await send(run, Milestone.sent)


async def teeth_first(run: Run) -> None:
    for position, name in enumerate(["teeth", "eyes", "teeth", "ears"]):
        await run.signal(InterleavedRouting.choose, name, message_id=f"{position}")


PATTERNS = [
    Pattern(16, "Deferred Choice", DeferredChoice, result="act on: yes", outside=say_yes),
    Pattern(
        17,
        "Interleaved Parallel Routing",
        interleaved_parallel_routing,
        result=["draw blood", "X-ray", "read blood", "read X-ray"],
    ),
    Pattern(18, "Milestone", Milestone, result="sent to work", outside=move_before_and_after),
    Pattern(
        39,
        "Critical Section",
        critical_section,
        result=["Ada pays", "Ada is given change", "Bob pays", "Bob is given change"],
    ),
    Pattern(40, "Interleaved Routing", InterleavedRouting, result=["teeth", "eyes", "ears"], outside=teeth_first),
]
