"""Reference workflows that have to do with other runs: children of every policy, messages both ways, last breaths."""

from __future__ import annotations

import asyncio

from pledger import workflow
from pledger.errors import ApplicationError, ChildWorkflowError, ExternalWorkflowError, WorkflowAlreadyStartedError
from pledger.workflow import ChildWorkflowCancellationType, ParentClosePolicy
from tests.reference.activities import step


@workflow.defn
async def member(number: int) -> str:
    if number < 0:
        raise ApplicationError(f"no member {number}", type="NoMember")
    await step(f"part {number}")
    return f"part {number}"


@workflow.defn
async def dreamer() -> None:
    await asyncio.sleep(3_600)


@workflow.defn
async def passer_by() -> None:
    await asyncio.sleep(0.5)


@workflow.defn
class Correspondent:
    """Answers its parent, by the name that it is given, and ends with its second letter."""

    def __init__(self) -> None:
        self.letters: list[str] = []

    @workflow.run
    async def run(self, answer_to: str) -> list[str]:
        await workflow.wait_condition(lambda: len(self.letters) == 1)
        await workflow.get_external_workflow_handle(answer_to).signal("answer", f"to {self.letters[0]}")
        await workflow.wait_condition(lambda: len(self.letters) == 2)
        return self.letters

    @workflow.signal
    def letter(self, text: str) -> None:
        self.letters.append(text)


@workflow.defn
class Family:
    """Its end is before that of some of its children, and it says so to each as its policy does."""

    def __init__(self) -> None:
        self.answers: list[str] = []

    @workflow.run
    async def run(self, count: int) -> list[str]:
        own = workflow.info().workflow_id
        told = list(
            await asyncio.gather(
                *[workflow.execute_child_workflow(member, n, id=f"{own}.member-{n}") for n in range(count)]
            )
        )
        try:
            await workflow.execute_child_workflow(member, -1)
        except ChildWorkflowError as error:
            told.append(f"{error.status}: {error.__cause__}")
        try:
            await workflow.start_child_workflow(member, 1, id=f"{own}.member-0")
        except WorkflowAlreadyStartedError:
            told.append("taken")
        told += await self._correspond(f"{own}.friend")
        for kind in (
            ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
            ChildWorkflowCancellationType.TRY_CANCEL,
        ):
            dream = await workflow.start_child_workflow(dreamer, cancellation_type=kind)
            dream.cancel("wake up")
            try:
                await dream
            except asyncio.CancelledError:
                told.append("woken")
        for policy in ParentClosePolicy:
            sleeper = passer_by if policy is ParentClosePolicy.ABANDON else dreamer
            await workflow.start_child_workflow(sleeper, id=f"{own}.{policy.value}", parent_close_policy=policy)
        workflow.start_child_workflow(passer_by, id=f"{own}.last", parent_close_policy=ParentClosePolicy.ABANDON)
        return told

    @workflow.signal
    def answer(self, text: str) -> None:
        self.answers.append(text)

    async def _correspond(self, friend: str) -> list[str]:
        child = await workflow.start_child_workflow(Correspondent.run, workflow.info().workflow_id, id=friend)
        await child.signal(Correspondent.letter, "first")
        await workflow.wait_condition(lambda: bool(self.answers))
        await workflow.get_external_workflow_handle(friend).signal(Correspondent.letter, "second")
        told = [*await child, *self.answers]
        try:
            await child.signal(Correspondent.letter, "third")
        except ExternalWorkflowError as error:
            told.append(error.reason)
        return told


WORKFLOWS = [Family, member, dreamer, passer_by, Correspondent]
#: The types that are started by a parent only.
OF_CHILDREN = frozenset({"member", "dreamer", "passer_by", "Correspondent"})
