"""Advanced branching and synchronization: some of the branches, and joins that wait for some, for all, or again."""

import asyncio

from examples.patterns.catalogue.pattern import Pattern, Run
from examples.patterns.catalogue.tasks import endless_task, slow_task, task
from pledger import workflow


@workflow.defn
async def multi_choice(calls: dict[str, str]) -> list[str]:
    return list(await asyncio.gather(*(task(team) for need, team in calls.items() if need != "none")))


@workflow.defn
async def structured_synchronizing_merge(calls: dict[str, str]) -> list[str]:
    teams = await asyncio.gather(*(task(team) for need, team in calls.items() if need != "none"))
    return [*teams, await task("report")]


async def inspected(part: str) -> list[str]:
    return [await task(part), await task(f"inspect {part}")]


@workflow.defn
async def multi_merge() -> list[list[str]]:
    return list(await asyncio.gather(*(inspected(part) for part in ("roof", "walls", "floor"))))


@workflow.defn
async def structured_discriminator() -> list[str]:
    checks = workflow.as_completed([task("breathing"), slow_task("pulse")])
    first = await (await anext(checks))
    told = [first, await task("triage")]
    async for _ in checks:
        pass  # the other one ends, and starts nothing
    return told


class Arrivals:
    """Branches that come again and again, in any order. Those that nobody has taken yet are kept."""

    def __init__(self) -> None:
        self.arrived: list[str] = []

    @workflow.signal
    def arrive(self, branch: str) -> None:
        self.arrived.append(branch)

    async def next_of(self, branches: list[str]) -> str:
        await workflow.wait_condition(lambda: any(each in branches for each in self.arrived))
        branch = next(each for each in self.arrived if each in branches)
        self.arrived.remove(branch)
        return branch


@workflow.defn
class BlockingDiscriminator(Arrivals):
    @workflow.run
    async def run(self, branches: list[str], rounds: int) -> list[str]:
        told = []
        for _ in range(rounds):
            first = await self.next_of(branches)
            told.append(await task(f"open for {first}"))
            for other in branches:  # until all have come, whoever comes again is kept for the next round
                if other != first:
                    await self.next_of([other])
        return told


@workflow.defn
async def cancelling_discriminator() -> list[str]:
    race = await workflow.first_of(lab=task("the lab"), archive=endless_task("the archive"))
    return [race.result, await task("report")]


@workflow.defn
async def structured_partial_join() -> list[str]:
    signatures = workflow.as_completed([task("Ada"), task("Bob"), slow_task("Cy")])
    signed = [await (await anext(signatures)) for _ in range(2)]
    told = [*sorted(signed), await task("issue the cheque")]
    async for _ in signatures:
        pass  # the third one ends, and starts nothing
    return told


@workflow.defn
class BlockingPartialJoin(Arrivals):
    @workflow.run
    async def run(self, branches: list[str], needed: int, rounds: int) -> list[str]:
        told = []
        for _ in range(rounds):
            came: list[str] = []
            while len(came) < len(branches):
                came.append(await self.next_of([each for each in branches if each not in came]))
                if len(came) == needed:
                    told.append(await task(f"print after {' and '.join(came)}"))
        return told


@workflow.defn
async def cancelling_partial_join(needed: int) -> list[str]:
    samples = []
    async with workflow.scope() as region:
        async for sample in workflow.as_completed([task("blood"), task("urine"), endless_task("tissue")]):
            samples.append(await sample)
            if len(samples) == needed:
                region.cancel()
    return [*sorted(samples), await task("diagnosis")]


@workflow.defn
class GeneralisedAndJoin(Arrivals):
    @workflow.run
    async def run(self, branches: list[str], rounds: int) -> list[str]:
        told = []
        for number in range(1, rounds + 1):
            for branch in branches:
                await self.next_of([branch])
            told.append(await task(f"assemble {number}"))
        return told


@workflow.defn
async def local_synchronizing_merge(options: list[str]) -> list[str]:
    begun = [workflow.start_activity(task, "body")]
    if "wings" in options:
        begun.append(workflow.start_activity(task, "wings"))
        if "floats" in options:
            begun.append(workflow.start_activity(task, "floats"))
    done, _ = await workflow.wait(begun)
    return [*(each.result() for each in done), await task("paint")]


async def reviewed(name: str, rounds: int, arrived: list[str]) -> None:
    for number in range(rounds):
        await task(f"{name} reads it, {number}")
    if rounds:
        arrived.append(name)


@workflow.defn
async def general_synchronizing_merge(rounds: dict[str, int]) -> list[str]:
    arrived: list[str] = []
    # Each branch is a task: one that has ended has arrived, or never will.
    await asyncio.gather(*(reviewed(name, count, arrived) for name, count in rounds.items()))
    return [*sorted(arrived), await task("decide")]


async def leg(number: int) -> str:
    return await task(f"leg {number}")


@workflow.defn
async def thread_merge() -> list[str]:
    await asyncio.gather(*(leg(number) for number in range(4)))
    return [await task("table on four legs")]


@workflow.defn
async def thread_split() -> list[str]:
    table = await task("table")
    return [table, *await asyncio.gather(*(leg(number) for number in range(4)))]


async def front_twice_then_back_twice(run: Run) -> None:
    for door in ("front", "back"):
        for time in ("first", "second"):
            await run.signal(Arrivals.arrive, door, message_id=f"{door} {time}")


async def wheels_before_frames(run: Run) -> None:
    for part in ("wheel", "frame"):
        for number in range(2):
            await run.signal(Arrivals.arrive, part, message_id=f"{part} {number}")


async def three_reviewers_twice(run: Run) -> None:
    for position, name in enumerate(["Ada", "Ada", "Bob", "Cy", "Cy", "Bob"]):
        await run.signal(Arrivals.arrive, name, message_id=f"{name} {position}")


CALLS = {"injured": "ambulance", "burning": "fire engine", "none": "police"}
PATTERNS = [
    Pattern(6, "Multi-Choice", multi_choice, (CALLS,), result=["ambulance", "fire engine"]),
    Pattern(
        7,
        "Structured Synchronizing Merge",
        structured_synchronizing_merge,
        (CALLS,),
        result=["ambulance", "fire engine", "report"],
    ),
    Pattern(8, "Multi-Merge", multi_merge, result=[[part, f"inspect {part}"] for part in ("roof", "walls", "floor")]),
    Pattern(9, "Structured Discriminator", structured_discriminator, result=["breathing", "triage"], is_race=True),
    Pattern(
        28,
        "Blocking Discriminator",
        BlockingDiscriminator,
        (["front", "back"], 2),
        result=["open for front", "open for front"],
        outside=front_twice_then_back_twice,
    ),
    Pattern(29, "Cancelling Discriminator", cancelling_discriminator, result=["the lab", "report"]),
    Pattern(
        30,
        "Structured Partial Join",
        structured_partial_join,
        result=["Ada", "Bob", "issue the cheque"],
        is_race=True,
    ),
    Pattern(
        31,
        "Blocking Partial Join",
        BlockingPartialJoin,
        (["Ada", "Bob", "Cy"], 2, 2),
        result=["print after Ada and Bob", "print after Ada and Cy"],
        outside=three_reviewers_twice,
    ),
    Pattern(32, "Cancelling Partial Join", cancelling_partial_join, (2,), result=["blood", "urine", "diagnosis"]),
    Pattern(
        33,
        "Generalised AND-Join",
        GeneralisedAndJoin,
        (["frame", "wheel"], 2),
        result=["assemble 1", "assemble 2"],
        outside=wheels_before_frames,
    ),
    Pattern(
        37,
        "Local Synchronizing Merge",
        local_synchronizing_merge,
        (["wings", "floats"],),
        result=["body", "wings", "floats", "paint"],
    ),
    Pattern(
        38,
        "General Synchronizing Merge",
        general_synchronizing_merge,
        ({"Ada": 1, "Bob": 3, "Cy": 0},),
        result=["Ada", "Bob", "decide"],
    ),
    Pattern(41, "Thread Merge", thread_merge, result=["table on four legs"]),
    Pattern(42, "Thread Split", thread_split, result=["table", "leg 0", "leg 1", "leg 2", "leg 3"]),
]
