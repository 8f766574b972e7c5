"""Triggers: what comes from outside, and whether it waits until somebody is there for it."""

from examples.patterns.catalogue.pattern import Pattern, Run, send
from examples.patterns.catalogue.tasks import task
from pledger import workflow


@workflow.defn
class TransientTrigger:
    """An alarm that comes while nobody is on duty is lost."""

    def __init__(self) -> None:
        self.is_on_duty = False
        self.alarm = ""

    @workflow.run
    async def run(self) -> str:
        await workflow.wait_condition(lambda: bool(self.alarm))
        return await task(f"go to {self.alarm}")

    @workflow.signal
    def on_duty(self) -> None:
        self.is_on_duty = True

    @workflow.signal
    def raise_alarm(self, place: str) -> None:
        if self.is_on_duty and not self.alarm:
            self.alarm = place


@workflow.defn
class PersistentTrigger:
    """A letter that comes before anybody wants it lies there until somebody does."""

    def __init__(self) -> None:
        self.letters: list[str] = []

    @workflow.run
    async def run(self) -> list[str]:
        told = [await task("open the office")]
        await workflow.wait_condition(lambda: bool(self.letters))
        told.append(await task(f"read of {self.letters.pop(0)}"))
        return told

    @workflow.signal
    def letter(self, about: str) -> None:
        self.letters.append(about)


async def alarms(run: Run) -> None:
    await send(run, TransientTrigger.raise_alarm, "the mill")
    await send(run, TransientTrigger.on_duty)
    await send(run, TransientTrigger.raise_alarm, "the bridge")


async def write_early(run: Run) -> None:
    await send(run, PersistentTrigger.letter, "a wedding")


PATTERNS = [
    Pattern(23, "Transient Trigger", TransientTrigger, result="go to the bridge", outside=alarms),
    Pattern(
        24,
        "Persistent Trigger",
        PersistentTrigger,
        result=["open the office", "read of a wedding"],
        outside=write_early,
    ),
]
