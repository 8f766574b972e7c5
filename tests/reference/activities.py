"""Activities of the reference workflows. They act on the simulated outside world, which may refuse, be slow, or do its
work and fail to say so."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from pledger import RetryPolicy, activity
from pledger.errors import ApplicationError
from pledger.testing import outside

QUICK = RetryPolicy(initial_interval=timedelta(seconds=0.2), maximum_interval=timedelta(seconds=5), maximum_attempts=0)
FEW = RetryPolicy(initial_interval=timedelta(seconds=0.2), maximum_interval=timedelta(seconds=2), maximum_attempts=3)
ONCE = RetryPolicy(maximum_attempts=1)


@activity.defn(retry_policy=QUICK)
async def step(name: str) -> str:
    """An idempotent effect, tried until it succeeds."""
    return await outside().apply(name)


@activity.defn(retry_policy=QUICK)
def plain_step(name: str) -> str:
    """The same as a plain function, which runs in a thread."""
    return outside().apply_now(name)


@activity.defn(retry_policy=FEW)
async def flaky(name: str) -> str:
    """Three attempts, then the workflow hears of it."""
    return await outside().apply(name)


@activity.defn(retry_policy=ONCE)
async def once(name: str) -> str:
    """At most once: the outside does whatever it is asked, as often as it is asked."""
    return await outside().apply(name, key="")


@activity.defn(retry_policy=QUICK, start_to_close_timeout=timedelta(seconds=3))
async def hasty(name: str) -> str:
    """Slow outside systems meet its time-out."""
    return await outside().apply(name)


@activity.defn(retry_policy=QUICK, heartbeat_timeout=timedelta(seconds=3), start_to_close_timeout=timedelta(seconds=60))
async def count_up(to: int) -> int:
    """Goes on where the attempt before it was."""
    details = activity.info().heartbeat_details
    count = int(details[0]) if details else 0
    while count < to:
        await asyncio.sleep(0.4)
        count += 1
        activity.heartbeat(count)
    return count


@activity.defn(retry_policy=QUICK, start_to_close_timeout=timedelta(minutes=10))
async def linger(seconds: float) -> str:
    """Takes its time, and may be cancelled."""
    await asyncio.sleep(seconds)
    return "lingered"


@activity.defn(retry_policy=QUICK)
async def refuse(name: str) -> str:
    """Fails for good."""
    raise ApplicationError(f"{name} is refused", type="Refused", non_retryable=True)


@activity.defn(retry_policy=QUICK)
async def undo(name: str) -> str:
    return await outside().apply(f"undo {name}")


@activity.defn(retry_policy=QUICK, task_queue="elsewhere")
async def distant(name: str) -> str:
    """Runs on another queue, mostly in another process than its run."""
    return await outside().apply(name)


@activity.defn(retry_policy=QUICK, cancellation_type="wait", heartbeat_timeout=timedelta(seconds=5))
async def grumble(beats: bool) -> str:
    """Fails after a while, again and again, whether it has told that it is alive or not."""
    for _ in range(4):
        await asyncio.sleep(0.2)
        if beats:
            activity.heartbeat()
    raise ConnectionError("not yet")


@activity.defn(retry_policy=ONCE, task_queue="nobody-serves-it", schedule_to_start_timeout=timedelta(seconds=3))
async def unheard(name: str) -> str:
    raise AssertionError(f"nobody serves the queue of {name}")


ACTIVITIES = [distant, unheard, step, plain_step, flaky, once, hasty, count_up, linger, grumble, refuse, undo]
