"""Polling: ask again until it is there, in a history that does not grow by it.

    python -m examples.patterns.polling

Whoever asks in a loop of the workflow (ask, sleep, ask, sleep) writes some events each time. Here the *activity* asks
once and fails while there is nothing; its retry policy is how often, and its time-out how long in all. Attempts are
rows beside the history, so what was asked for thirty times has the same few events as what was asked for twice.
"""

import asyncio
import sys
from datetime import timedelta

from pledger import RetryPolicy, Worker, activity, connect, errors, workflow

#: What the carrier will have to say: so many times "on its way", then "delivered". No number: it is never delivered.
CARRIER = {"lamp": 1, "piano": 29, "ring": None}

EVERY_10_MS = RetryPolicy(
    initial_interval=timedelta(milliseconds=10),
    backoff_coefficient=1,  # at a steady pace; 2 is for those who would rather not be asked so often
    maximum_attempts=0,  # as long as its time-out lasts
)


@activity.defn(retry_policy=EVERY_10_MS)
async def delivered(parcel: str) -> str:
    """Asks once. Where the other side says when to come back, `next_retry_delay=` of the error hands it on. BENIGN:
    that it is not there yet is no news, so the log has no warning of it."""
    until = CARRIER[parcel]
    if until is None or activity.info().attempt <= until:
        raise errors.ApplicationError(
            f"{parcel} is on its way", type="NotYet", category=errors.ApplicationErrorCategory.BENIGN
        )
    return f"{parcel} is delivered"


@workflow.defn
async def follow(parcel: str, patience: timedelta) -> str:
    try:
        return await workflow.execute_activity(delivered, parcel, schedule_to_close_timeout=patience)
    except errors.ActivityError as error:
        if not isinstance(error.__cause__, errors.TimeoutError):
            raise
        return f"{parcel} is given up"


WORKFLOWS = [follow]
ACTIVITIES = [delivered]


async def main(url: str) -> None:
    async with connect(url) as client, Worker(client, workflows=WORKFLOWS, activities=ACTIVITIES):
        for parcel, asked in CARRIER.items():
            patience = timedelta(milliseconds=300) if asked is None else timedelta(minutes=1)
            handle = await client.start_workflow(follow, parcel, patience, id=f"follow-{parcel}")
            told = await handle.result()
            times = "in vain" if asked is None else f"{asked + 1} times"
            print(f"{told}: asked {times}, {len((await handle.history()).events)} events")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "memory://"))
