"""Reference workflows that depend on an outside system with a retry budget and a circuit breaker.

Apart from the others: a worker that knows such an activity takes all that it takes from its queue by their order.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from pledger import CircuitBreaker, RetryBudget, activity, workflow
from tests.reference.activities import QUICK, step

COURIER = RetryBudget(
    "courier",
    ratio=0.5,
    minimum_per_second=2,
    window=timedelta(seconds=10),
    breaker=CircuitBreaker(minimum_calls=4, pause=timedelta(seconds=1), maximum_pause=timedelta(seconds=4)),
)


@activity.defn(retry_policy=QUICK, retry_budget=COURIER)
async def book(name: str) -> str:
    """It is down at first, for everybody: the third attempt of each has the effect."""
    if activity.info().attempt <= 2:
        raise ConnectionError(f"{name}: refused")
    return await step.fn(name)


@activity.defn(retry_policy=QUICK, retry_budget=COURIER)
async def track(name: str) -> str:
    """It works, if the outside does."""
    return await step.fn(name)


@workflow.defn
async def booking(width: int) -> list[str]:
    booked = await asyncio.gather(*(book(f"book {n}") for n in range(width)))
    await asyncio.sleep(1)
    return [*booked, *await asyncio.gather(*(track(f"track {n}") for n in range(width)))]


ACTIVITIES = [book, track]
WORKFLOWS = [booking]
