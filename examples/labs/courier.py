"""Lab 2: a failure is a fact.

    python -m examples.labs.courier

A courier refuses a parcel for good: what was done before is undone, and the order fails. The next day couriers drive
again, and the same order is started once more. Under the same id that is the same run, and its end is on record: nobody
is asked again, nothing is charged again. Whoever wants another try says so, with another id.
"""

import asyncio
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pledger import Worker, activity, connect, errors, workflow

# The outside ----------------------------------------------------------------------------------------------------------


@dataclass
class Outside:
    """couriers_drive: whether a courier takes a parcel. asked: every request that came, in order."""

    couriers_drive: bool = False
    asked: list[str] = field(default_factory=list)


outside = Outside()


@activity.defn
async def charge_card(order: str) -> str:
    outside.asked.append("charge")
    return f"charge of {order}"


@activity.defn
async def refund_card(charge: str) -> str:
    outside.asked.append("refund")
    return f"{charge} paid back"


@activity.defn
async def book_courier(order: str) -> str:
    outside.asked.append("courier")
    if not outside.couriers_drive:
        raise errors.ApplicationError("no courier drives today", type="CourierRefused", non_retryable=True)
    return f"{order} is on its way"


# The process ----------------------------------------------------------------------------------------------------------


@workflow.defn
async def send(order: str) -> str:
    charge = await charge_card(order)
    try:
        return await book_courier(order)
    except errors.ActivityError as refused:
        await refund_card(charge)
        raise errors.ApplicationError(f"{order} is not sent", type="NotSent") from refused.__cause__


# The lab --------------------------------------------------------------------------------------------------------------


async def main(url: str) -> None:
    print("Monday, no courier drives")
    await place(url, "order-1", id="order-1")
    outside.couriers_drive = True
    print("Tuesday, couriers drive again")
    await place(url, "order-1", id="order-1")
    await place(url, "order-1", id="order-1-second-try")


async def place(url: str, order: str, *, id: str) -> None:  # noqa: A002 - as in start_workflow
    """Start the order, as a program would that has just begun, and tell what came of it."""
    outside.asked.clear()
    async with (
        connect(url) as client,
        Worker(client, workflows=[send], activities=[charge_card, refund_card, book_courier]),
    ):
        handle = await client.start_workflow(send, order, id=id)
        print(f"  {id}: {'a new run' if handle.is_new else 'the run that there is'}")
        try:
            ended = await handle.result()
        except errors.WorkflowFailedError as failed:
            ended = ", since ".join(reasons(failed))
        print(f"    asked of the outside: {', '.join(outside.asked) or 'nothing'}")
        print(f"    {ended}")


def reasons(error: BaseException) -> Iterator[str]:
    """What the error was caused by, down to the first cause."""
    cause = error.__cause__
    while cause is not None:
        yield str(cause)
        cause = cause.__cause__


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(f"sqlite:///{Path(folder) / 'ledger.db'}"))
