"""Scatter with partial failure: ask many, take what comes, and say of the others why nothing came.

    python -m examples.patterns.scatter

Every supplier is asked at the same time. One refuses, one is down, one does not answer in time: none of them holds up
the others or takes their answers away. Only when too few have answered does the run fail, with the reasons.
"""

import asyncio
import sys
from dataclasses import dataclass, field
from datetime import timedelta

from pledger import RetryPolicy, Worker, activity, connect, errors, workflow

PRICES = {"Ada": 420, "Bob": 390, "Cy": 450}


@dataclass
class Offers:
    """prices: of those who answered. missing: of the others, why."""

    prices: dict[str, int] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


@activity.defn(retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=10), maximum_attempts=2))
async def ask(supplier: str) -> int:
    match supplier:
        case "Dan":
            raise errors.ApplicationError("we do not make it any more", type="Refused", non_retryable=True)
        case "Eve":
            raise ConnectionError("the line is dead")
        case "Fay":
            await asyncio.sleep(3_600)
        case _:
            pass
    return PRICES[supplier]


@workflow.defn
class Tender:
    def __init__(self) -> None:
        self.offers = Offers()

    @workflow.run
    async def run(self, suppliers: list[str], enough: int, patience: timedelta) -> Offers:
        # Not gather(..., return_exceptions=True): that takes a request to cancel for one more answer.
        await asyncio.gather(*(self.ask(supplier, patience) for supplier in suppliers))
        if len(self.offers.prices) < enough:
            raise errors.ApplicationError(
                f"{len(self.offers.prices)} of {enough} offers", self.offers.missing, type="TooFewOffers"
            )
        return self.offers

    async def ask(self, supplier: str, patience: timedelta) -> None:
        try:
            answer = await workflow.execute_activity(ask, supplier, schedule_to_close_timeout=patience)
        except errors.ActivityError as error:
            reason = error.__cause__
            is_late = isinstance(reason, errors.TimeoutError)
            self.offers.missing[supplier] = "no answer in time" if is_late else str(reason)
        else:
            self.offers.prices[supplier] = answer

    @workflow.query
    def so_far(self) -> Offers:
        return self.offers


WORKFLOWS = [Tender]
ACTIVITIES = [ask]


async def main(url: str) -> None:
    patience = timedelta(seconds=2)
    async with connect(url) as client, Worker(client, workflows=WORKFLOWS, activities=ACTIVITIES):
        asked = ["Ada", "Bob", "Cy", "Dan", "Eve", "Fay"]
        offers: Offers = await client.execute_workflow(Tender, asked, 2, patience, id="tender-1")
        for supplier in asked:
            print(f"{supplier}: {offers.prices.get(supplier) or offers.missing[supplier]}")
        try:
            await client.execute_workflow(Tender, ["Ada", "Dan"], 2, patience, id="tender-2")
        except errors.WorkflowFailedError as failed:
            print(f"tender-2 failed: {failed.__cause__}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "memory://"))
