"""What the tests of activities share: runs of one step, and what became of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from pledger import RetryPolicy, activity, workflow
from pledger.errors import ActivityError, WorkflowFailedError
from tests.engine.harness import Ledger

AT_ONCE = RetryPolicy(initial_interval=timedelta(milliseconds=1), maximum_attempts=3)
ONCE = RetryPolicy(maximum_attempts=1)


async def result_of(ledger: Ledger, code: Any, *activities: Any, **options: Any) -> Any:
    async with ledger.connect() as client, ledger.worker(client, code, *activities, **options):
        return await (await client.start_workflow(code, id="order-1")).result()


async def failure_of(ledger: Ledger, code: Any, *activities: Any, **options: Any) -> ActivityError:
    """The ActivityError that failed the run."""
    with pytest.raises(WorkflowFailedError) as caught:
        await result_of(ledger, code, *activities, **options)
    assert isinstance(caught.value.__cause__, ActivityError)
    return caught.value.__cause__


async def attempts_of(ledger: Ledger) -> list[tuple[int, str]]:
    """(attempt, outcome) of the attempt log."""
    async with ledger.connect() as client:
        found = (await client.handle("order-1").describe()).attempts
    return [(each.attempt, each.outcome) for each in found]


def raising(make: Callable[[int], BaseException | str], **options: Any) -> tuple[Any, Any, list[int]]:
    """(workflow, activity, attempts made): the activity raises or returns what `make` makes of its attempt number."""
    made: list[int] = []

    @activity.defn(**{"retry_policy": AT_ONCE, **options})
    async def flaky() -> str:
        made.append(activity.info().attempt)
        outcome = make(activity.info().attempt)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    @workflow.defn
    async def fulfil() -> str:
        return await flaky()

    return fulfil, flaky, made


async def pending_of(handle: Any) -> Any:
    return (await handle.describe()).pending


async def hang() -> None:
    await asyncio.Event().wait()
