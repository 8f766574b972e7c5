"""Multiple instances: one task many times over, how many being known early, late, or never."""

import asyncio

from examples.patterns.catalogue.pattern import Pattern, Run, send
from examples.patterns.catalogue.tasks import endless_task, slow_task, task
from pledger import workflow
from pledger.workflow import ActivityHandle, ParentClosePolicy


@workflow.defn
async def fine(number: int) -> str:
    return await task(f"fine {number}")


@workflow.defn
async def multiple_instances_without_synchronization(count: int) -> str:
    for number in range(count):
        await workflow.start_child_workflow(fine, number, parent_close_policy=ParentClosePolicy.ABANDON)
    return await task("close the file")


@workflow.defn
async def multiple_instances_by_design() -> list[str]:
    """Three, whatever the case."""
    return list(await asyncio.gather(task("first director"), task("second director"), task("third director")))


@workflow.defn
async def multiple_instances_by_data(engines: list[str]) -> list[str]:
    """As many as there are when it begins."""
    return list(await asyncio.gather(*(task(engine) for engine in engines)))


@workflow.defn
class MultipleInstancesAsTheyCome:
    """Nobody knows how many until the last one has ended."""

    def __init__(self) -> None:
        self.instances: list[ActivityHandle[str]] = []
        self.has_all = False

    @workflow.run
    async def run(self) -> list[str]:
        await workflow.wait_condition(lambda: self.has_all and all(each.done() for each in self.instances))
        return [each.result() for each in self.instances]

    @workflow.signal
    def witness(self, name: str) -> None:
        self.instances.append(workflow.start_activity(task, f"statement of {name}"))

    @workflow.signal
    def no_more(self) -> None:
        self.has_all = True


@workflow.defn
async def static_partial_join(passengers: list[str], needed: int) -> list[str]:
    checks = workflow.as_completed([(slow_task if name == "Cy" else task)(name) for name in passengers])
    checked = [await (await anext(checks)) for _ in range(needed)]
    told = [*sorted(checked), await task("board")]
    async for _ in checks:
        pass  # the others end, and start nothing
    return told


@workflow.defn
async def cancelling_partial_join_of_instances(samples: list[str], needed: int) -> list[str]:
    found = []
    async with workflow.scope() as region:
        runs = [(endless_task if name == "c" else task)(name) for name in samples]
        async for each in workflow.as_completed(runs):
            found.append(await each)
            if len(found) == needed:
                region.cancel()
    return [*sorted(found), await task("publish")]


@workflow.defn
class DynamicPartialJoin:
    """Instances are added while others are at work. After each one's end it is asked whether they are enough."""

    def __init__(self) -> None:
        self.begun: list[asyncio.Future[None]] = []
        self.prices: list[int] = []
        self.is_over = False

    @workflow.run
    async def run(self, enough: int) -> list[str]:
        await workflow.wait_condition(lambda: sum(self.prices) >= enough)
        self.is_over = True
        told = [f"{sum(self.prices)} raised", await task("build")]
        await workflow.wait(self.begun)  # what is still at work ends, and starts nothing
        return told

    @workflow.signal
    def sponsor(self, name: str, price: int) -> None:
        if not self.is_over:
            self.begun.append(asyncio.ensure_future(self.collect(name, price)))

    async def collect(self, name: str, price: int) -> None:
        await task(f"collect from {name}")
        self.prices.append(price)


async def two_witnesses(run: Run) -> None:
    await send(run, MultipleInstancesAsTheyCome.witness, "Ada")
    await send(run, MultipleInstancesAsTheyCome.witness, "Bob")
    await send(run, MultipleInstancesAsTheyCome.no_more)


async def three_sponsors(run: Run) -> None:
    for name in ("Ada", "Bob", "Cy"):
        await send(run, DynamicPartialJoin.sponsor, name, 40)


PATTERNS = [
    Pattern(
        12,
        "Multiple Instances without Synchronization",
        multiple_instances_without_synchronization,
        (3,),
        result="close the file",
    ),
    Pattern(
        13,
        "Multiple Instances with a Priori Design-Time Knowledge",
        multiple_instances_by_design,
        result=["first director", "second director", "third director"],
    ),
    Pattern(
        14,
        "Multiple Instances with a Priori Run-Time Knowledge",
        multiple_instances_by_data,
        (["left", "right"],),
        result=["left", "right"],
    ),
    Pattern(
        15,
        "Multiple Instances without a Priori Run-Time Knowledge",
        MultipleInstancesAsTheyCome,
        result=["statement of Ada", "statement of Bob"],
        outside=two_witnesses,
    ),
    Pattern(
        34,
        "Static Partial Join for Multiple Instances",
        static_partial_join,
        (["Ada", "Bob", "Cy"], 2),
        result=["Ada", "Bob", "board"],
        is_race=True,
    ),
    Pattern(
        35,
        "Cancelling Partial Join for Multiple Instances",
        cancelling_partial_join_of_instances,
        (["a", "b", "c"], 2),
        result=["a", "b", "publish"],
    ),
    Pattern(
        36,
        "Dynamic Partial Join for Multiple Instances",
        DynamicPartialJoin,
        (120,),
        result=["120 raised", "build"],
        outside=three_sponsors,
    ),
]
