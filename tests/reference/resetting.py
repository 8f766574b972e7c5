"""What an operator resets and redrives: effects before and after messages, a timer, steps beside each other, drawn ids,
a step that fails for good until it is redriven. It needs nobody to come to an end.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from pledger import activity, workflow
from pledger.errors import ApplicationError
from pledger.history import resets
from pledger.testing import outside
from tests.reference.activities import QUICK, flaky, step


@activity.defn(retry_policy=QUICK)
async def may_fail(name: str) -> str:
    """Where nobody has put it right, it has its effect, and is refused for good."""
    receipt = await outside().apply(name)
    if activity.info().fencing_token <= resets.TOKENS_STEP:
        raise ApplicationError(f"{name} is refused", non_retryable=True)
    return receipt


@workflow.defn
class Errand:
    """Three steps, one of them after a message or in time without it, two beside each other, one that may fail."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    @workflow.run
    async def run(self, name: str) -> list[str]:
        first = await step(f"{name} {workflow.uuid4().hex[:8]}")
        try:
            await workflow.wait_condition(lambda: bool(self.notes), timeout=timedelta(seconds=2))
        except TimeoutError:
            self.notes.append("nobody")
        beside = await asyncio.gather(flaky(f"{name} left"), step(f"{name} right"), return_exceptions=True)
        await asyncio.sleep(workflow.random().random())
        last = await may_fail(f"{name} {self.notes[0]}")
        return [first, *map(str, beside), last, *self.notes]

    @workflow.signal
    async def note(self, text: str) -> None:
        self.notes.append(text)
        await step(f"noted {text}")


WORKFLOWS = [Errand]
ACTIVITIES = [may_fail]
