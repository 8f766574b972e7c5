"""Cancellation and force completion: of one task, of a part, of the whole case."""

import asyncio

from examples.patterns.catalogue.pattern import Pattern, Run, send
from examples.patterns.catalogue.tasks import endless_task, task
from pledger import workflow


@workflow.defn
async def cancel_task() -> list[str]:
    search = workflow.start_activity(endless_task, "search")
    found = await task("the cat comes home")
    search.cancel()
    return [found, "search cancelled" if search.cancelled() else "searched in vain"]


@workflow.defn
async def cancel_case() -> str:
    try:
        return await endless_task("build")
    except asyncio.CancelledError:  # whoever wants nothing to be done then leaves this out
        await workflow.shield(task("tidy up"))
        raise


@workflow.defn
async def cancel_region() -> list[str]:
    beside = workflow.start_activity(task, "the case goes on")
    async with workflow.scope() as region, asyncio.TaskGroup() as court:
        court.create_task(endless_task("hearing"))
        court.create_task(endless_task("report"))
        await task("the claim is withdrawn")
        region.cancel()
    return ["region cancelled" if region.cancelled else "heard", await beside]


class Inquiry:
    """Some have answered, and one never will."""

    def __init__(self) -> None:
        self.answers: list[str] = []
        self.is_over = False

    @workflow.signal
    def end(self) -> None:
        self.is_over = True

    @workflow.query
    def count(self) -> int:
        return len(self.answers)

    async def ask_until_over(self, people: list[str]) -> None:
        async with workflow.scope() as instances:
            for person in people:
                asyncio.ensure_future(self.ask(person))  # noqa: RUF006 - the scope knows it
            await workflow.wait_condition(lambda: self.is_over)
            instances.cancel()

    async def ask(self, person: str) -> None:
        self.answers.append(await (endless_task if person == "Cy" else task)(person))


@workflow.defn
class CancelMultipleInstances(Inquiry):
    """Nothing comes of any of them, nor of what would have followed."""

    @workflow.run
    async def run(self, people: list[str]) -> str:
        await self.ask_until_over(people)
        return "inquiry cancelled"


@workflow.defn
class CompleteMultipleInstances(Inquiry):
    """What there is counts, and the case goes on with it."""

    @workflow.run
    async def run(self, people: list[str]) -> list[str]:
        await self.ask_until_over(people)
        return [*sorted(self.answers), await task("evaluate")]


#: Of those who are asked; the others never answer.
ANSWER = 2


async def end_it_when_they_have_answered(run: Run) -> None:
    while (await run.query(Inquiry.count) or 0) < ANSWER:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    await send(run, Inquiry.end)


async def cancel(run: Run) -> None:
    await run.cancel("the customer has withdrawn")


PATTERNS = [
    Pattern(19, "Cancel Task", cancel_task, result=["the cat comes home", "search cancelled"]),
    Pattern(20, "Cancel Case", cancel_case, outside=cancel),
    Pattern(25, "Cancel Region", cancel_region, result=["region cancelled", "the case goes on"]),
    Pattern(
        26,
        "Cancel Multiple Instance Activity",
        CancelMultipleInstances,
        (["Ada", "Bob", "Cy"],),
        result="inquiry cancelled",
        outside=end_it_when_they_have_answered,
    ),
    Pattern(
        27,
        "Complete Multiple Instance Activity",
        CompleteMultipleInstances,
        (["Ada", "Bob", "Cy"],),
        result=["Ada", "Bob", "evaluate"],
        outside=end_it_when_they_have_answered,
    ),
]
