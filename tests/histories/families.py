"""The workflows of the golden histories that have to do with other runs."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from pledger import workflow
from pledger.errors import ApplicationError, ChildWorkflowError, ExternalWorkflowError, WorkflowAlreadyStartedError
from pledger.workflow import ChildWorkflowCancellationType, ParentClosePolicy


@workflow.defn
async def double(number: int) -> int:
    await asyncio.sleep(1)
    return 2 * number


@workflow.defn
async def gives_up(why: str) -> None:
    raise ApplicationError(why, type="GivenUp")


@workflow.defn
async def sleeper() -> None:
    await asyncio.sleep(600)


@workflow.defn
class Letters:
    """It ends with its third letter."""

    def __init__(self) -> None:
        self.got: list[str] = []

    @workflow.run
    async def run(self) -> list[str]:
        await workflow.wait_condition(lambda: len(self.got) >= 3)
        return self.got

    @workflow.signal
    def letter(self, text: str) -> None:
        self.got.append(text)


@workflow.defn
async def with_children() -> list[str]:
    """Children side by side, one that fails, one whose id is taken, and one that runs out of time."""
    told = [str(each) for each in await asyncio.gather(*[workflow.execute_child_workflow(double, n) for n in range(3)])]
    try:
        await workflow.execute_child_workflow(gives_up, "no use", id="gives-up")
    except ChildWorkflowError as error:
        told.append(f"{error.status}: {error.__cause__}")
    try:
        await workflow.start_child_workflow(double, 1, id="gives-up")
    except WorkflowAlreadyStartedError as error:
        told.append(f"{error.workflow_id} is taken")
    try:
        await workflow.execute_child_workflow("double", 5, id="late", run_timeout=timedelta(milliseconds=500))
    except ChildWorkflowError as error:
        told.append(f"{error.status}: {type(error.__cause__).__name__}")
    return told


@workflow.defn
async def cancels_its_children() -> list[str]:
    """A child for each way of being cancelled."""
    told = []
    for kind in ChildWorkflowCancellationType:
        handle = await workflow.start_child_workflow(
            sleeper, id=kind.value, cancellation_type=kind, parent_close_policy=ParentClosePolicy.REQUEST_CANCEL
        )
        handle.cancel("enough")
        try:
            await handle
        except asyncio.CancelledError:
            told.append(f"{kind.value} at {workflow.now():%M:%S}")
    return told


@workflow.defn
async def writes_to_others() -> list[str]:
    """To a child of its own, to the same run by its id, and to one that is not there."""
    child = await workflow.start_child_workflow(Letters.run, id="letters")
    await child.signal(Letters.letter, "from its parent")
    other = workflow.get_external_workflow_handle("letters")
    await asyncio.gather(other.signal(Letters.letter, "from somebody"), other.signal("letter", "and once more"))
    told = list(await child)
    try:
        await child.signal(Letters.letter, "late")
    except ExternalWorkflowError as error:
        told.append(f"{error.workflow_id} {error.reason}")
    try:
        await workflow.get_external_workflow_handle("nobody").cancel("why")
    except ExternalWorkflowError as error:
        told.append(f"{error.workflow_id} {error.reason}")
    return told


@workflow.defn
async def last_breath() -> str:
    """What concerns others is written with its end."""
    letters = await workflow.start_child_workflow(Letters.run, parent_close_policy=ParentClosePolicy.ABANDON)
    for text in ("one", "two", "three"):
        asyncio.create_task(letters.signal(Letters.letter, text))  # noqa: RUF006 - that nobody waits for it is the point
    workflow.start_child_workflow(double, 21, id="survivor", parent_close_policy=ParentClosePolicy.ABANDON)
    workflow.start_child_workflow(double, 22, id="never")  # is not to outlive it, and so it is not started
    await asyncio.sleep(0)
    return "ended"


@workflow.defn
async def double_and_its_parent() -> int:
    return await workflow.execute_child_workflow(double, 21, id="child")
