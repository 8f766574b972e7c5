"""The cases about children: what becomes of one that its parent does not wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from pledger import activity, errors, workflow
from pledger.testing import Environment
from pledger.workflow import ChildWorkflowCancellationType, ParentClosePolicy
from tests.cases.harness import recorded
from tests.engine.harness import Ledger

Virtual = Callable[..., Environment]

# CHD-01 ---------------------------------------------------------------------------------------------------------------


@workflow.defn
async def archive() -> str:
    return "archived"


@workflow.defn
async def last_breath() -> str:
    workflow.start_child_workflow(archive, id="arch-7", parent_close_policy=ParentClosePolicy.ABANDON)  # not awaited
    return "ok"


async def test_CHD_01_a_child_of_the_last_breath_is_there_with_its_parents_end(ledger: Ledger) -> None:
    # The worker that ends the parent dies before the child is activated: it knows nothing of that type.
    async with ledger.connect() as client, ledger.worker(client, last_breath):
        handle = await client.start_workflow(last_breath, id="parent")
        assert await handle.result() == "ok"
        types = recorded(await handle.history())
    # It was not created silently later, and neither lost: it stands in the very transition that ended the parent.
    assert types[-2:] == ["ChildStartRequested", "RunCompleted"]
    async with ledger.connect() as client:
        # It is listed as running, holds its id, and has work scheduled: whoever serves its queue takes it.
        found = await client.handle("arch-7").describe()
        assert (found.summary.status, found.last_event) == ("running", 0)
        assert found.due is not None
        assert [each.kind for each in found.inbox] == ["start"]
        with pytest.raises(errors.WorkflowAlreadyStartedError):
            await client.start_workflow("another", id="arch-7")
        async with ledger.worker(client, archive):
            assert await client.handle("arch-7").result() == "archived"


# CHD-03 ---------------------------------------------------------------------------------------------------------------


@activity.defn
async def clean_up() -> None:
    await asyncio.sleep(300)


@workflow.defn
async def independent() -> None:
    await asyncio.sleep(86_400)


@workflow.defn
async def cleans_up() -> None:
    try:
        await workflow.execute_child_workflow(
            independent,
            id="c",
            parent_close_policy=ParentClosePolicy.ABANDON,
            cancellation_type=ChildWorkflowCancellationType.ABANDON,
        )
    except asyncio.CancelledError:
        await asyncio.shield(asyncio.ensure_future(clean_up()))
        raise


def test_CHD_03_a_late_end_of_an_abandoned_child_is_accepted_and_ignored(virtual: Virtual) -> None:
    env = virtual(workflows=[cleans_up, independent], activities=[clean_up])
    parent = env.start(cleans_up, id="parent")
    env.sleep(timedelta(minutes=1))
    parent.cancel("enough")
    env.sleep(timedelta(minutes=1))
    child = env.handle("c", workflow=independent)
    child.cancel("somebody else")
    env.sleep(timedelta(minutes=1))
    # The parent is still in its clean-up, and has been told.
    assert parent.describe().summary.status == "running"
    assert recorded(parent.history())[-1] == "ChildClosed"
    with pytest.raises(errors.WorkflowFailedError) as ended:
        parent.result()
    assert ended.value.status == "cancelled"
    # The clean-up came to its end before that.
    assert recorded(parent.history())[-3:] == ["ChildClosed", "ActivityCompleted", "RunCancelled"]
    with pytest.raises(errors.WorkflowFailedError) as of_child:
        child.result()
    assert of_child.value.status == "cancelled"
    # That the history replays the environment looks at when it closes.
