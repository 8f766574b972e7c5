"""What the golden histories of resets run: a step that is refused for good until somebody has put it right."""

from __future__ import annotations

import asyncio

from pledger import activity, workflow
from pledger.errors import ApplicationError
from pledger.history import resets


@activity.defn
async def pack(what: str) -> str:
    return f"{what} packed"


@activity.defn
async def hand_over(what: str) -> str:
    if activity.info().fencing_token <= resets.TOKENS_STEP:
        raise ApplicationError(f"nobody takes {what}", non_retryable=True)
    return f"{what} handed over"


@workflow.defn
class Parcel:
    """Ids before and after a message; two steps at once; the last one fails."""

    def __init__(self) -> None:
        self.address = ""

    @workflow.run
    async def run(self) -> list[str]:
        number = str(workflow.uuid4())
        packed = await asyncio.gather(pack(f"{number} left"), pack(f"{number} right"))
        await workflow.wait_condition(lambda: bool(self.address))
        await asyncio.sleep(5)
        return [*packed, await hand_over(f"{workflow.uuid4()} to {self.address}")]

    @workflow.signal
    def send_to(self, address: str) -> None:
        self.address = address


ACTIVITIES = (pack, hand_over)
