"""Children, and messages between runs: on every store, with whole workers."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from pledger import activity, workflow
from pledger.errors import (
    ApplicationError,
    ChildWorkflowError,
    ExternalWorkflowError,
    InvalidPolicyError,
    TerminatedError,
    TimeoutError,  # noqa: A004 - the field's name for it
    UsageError,
    WorkflowAlreadyStartedError,
    WorkflowFailedError,
)
from pledger.workflow import ChildWorkflowCancellationType, IdReusePolicy, ParentClosePolicy
from tests.engine.harness import Ledger, until, worker_process


@activity.defn
async def add(number: int, more: int) -> int:
    return number + more


@workflow.defn(owner="children's")
async def plus_one(number: int) -> int:
    return await add(number, 1)


@workflow.defn
async def fails(why: str) -> None:
    try:
        raise ValueError(why)
    except ValueError as error:
        raise ApplicationError(why, 7, type="Why") from error


@workflow.defn
async def sleeps() -> str:
    await asyncio.sleep(3_600)
    return "slept"


@workflow.defn
class Gathers:
    """Ends with its second word."""

    def __init__(self) -> None:
        self.words: list[str] = []

    @workflow.run
    async def run(self) -> list[str]:
        await workflow.wait_condition(lambda: len(self.words) >= 2)
        return self.words

    @workflow.signal
    def word(self, word: str) -> None:
        self.words.append(word)


@workflow.defn(owner="parents'")
async def awaits_children() -> list[object]:
    told: list[object] = list(
        await asyncio.gather(*[workflow.execute_child_workflow(plus_one, number) for number in range(3)])
    )
    for workflow_id, timeout in (("fails", None), ("is-late", timedelta(milliseconds=50)), ("is-ended", None)):
        child = fails if workflow_id == "fails" else sleeps
        args = ["no use"] if workflow_id == "fails" else []
        try:
            await workflow.execute_child_workflow(child, *args, id=workflow_id, execution_timeout=timeout)
        except ChildWorkflowError as error:
            cause = error.__cause__
            told.append([error.status, error.workflow_id, error.workflow_type, type(cause).__name__])
            if isinstance(cause, ApplicationError):
                told.append([cause.type, cause.details[0], str(cause.__cause__)])
    return told


async def test_ends_of_children_come_back_to_their_parent(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, awaits_children, plus_one, fails, sleeps, add):
        handle = await client.start_workflow(awaits_children, id="parent")

        async def is_there() -> bool:
            if await client.count("workflow_id = 'is-ended'") == 0:
                return False
            return (await client.handle("is-ended").describe()).last_event > 0  # whoever has it knows its start

        await until(is_there)
        await client.handle("is-ended").terminate("an operator has had enough")
        assert await handle.result() == [
            *[1, 2, 3],
            ["failed", "fails", "fails", "ApplicationError"],
            ["Why", 7, "ValueError: no use"],
            ["timed_out", "is-late", "sleeps", TimeoutError.__name__],
            ["terminated", "is-ended", "sleeps", TerminatedError.__name__],
        ]
        # Its owner is that of its definition, or its parent's.
        found = await client.handle("is-ended").describe()
        assert found.state.owner == "parents'"
        assert found.parent is not None
        assert (found.parent.workflow_id, found.parent.run_id) == ("parent", handle.run_id)
        store = client.internals.store
        row = await store.find_run("default", "parent")
        assert row is not None
        children = await store.read_children(row.run_key, 10)
        assert [each.row.status for each in children] == ["completed"] * 3 + ["failed", "timed_out", "terminated"]
        assert [each.row.workflow_id for each in await store.read_children(row.run_key, 2, children[3].event_id)] == [
            "is-late",
            "is-ended",
        ]
        parent = await store.read_parent(children[0].row.chain_key)
        assert parent is not None
        assert parent.run_key == row.run_key


@workflow.defn
async def writes_to(workflow_id: str) -> list[str]:
    other = workflow.get_external_workflow_handle(workflow_id)
    await other.signal(Gathers.word, "one")
    child = await workflow.start_child_workflow(Gathers.run, id="child", id_reuse_policy=IdReusePolicy.ALLOW_DUPLICATE)
    await asyncio.gather(child.signal(Gathers.word, "a"), child.signal("word", "b"), other.signal("word", "two"))
    told = list(await child)
    late = [child.signal("word", "c"), workflow.get_external_workflow_handle("nobody").cancel()]
    for send in late:
        try:
            await send
        except ExternalWorkflowError as error:
            told.append(f"{error.workflow_id}: {error.reason}")
    return told


async def test_messages_reach_another_run_once_or_say_why_not(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, writes_to, Gathers):
        other = await client.start_workflow(Gathers, id="other")
        told = await client.execute_workflow(writes_to, "other", id="writer")
        assert told == ["a", "b", "child: closed", "nobody: not_found"]
        assert await other.result() == ["one", "two"]
        # The id of the child is free for another one now that it has ended, since the code says so.
        other = await client.start_workflow(Gathers, id="other-2")
        assert await client.execute_workflow(writes_to, "other-2", id="writer-2") == told


@workflow.defn
async def starts(policy: str, workflow_id: str) -> str:
    await workflow.start_child_workflow(sleeps, id=workflow_id, parent_close_policy=ParentClosePolicy(policy))
    return policy


@workflow.defn
async def starts_and_waits(workflow_id: str) -> None:
    await workflow.start_child_workflow(sleeps, id=workflow_id)
    await asyncio.sleep(3_600)


async def test_what_becomes_of_children_whose_parent_has_ended(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, starts, starts_and_waits, sleeps):
        for policy in ParentClosePolicy:
            await client.execute_workflow(starts, policy.value, policy.value, id=f"parent-{policy.value}")
        with pytest.raises(WorkflowFailedError) as terminated:
            await client.handle("terminate").result()
        assert "its parent, workflow 'parent-terminate'" in str(terminated.value)
        with pytest.raises(WorkflowFailedError) as cancelled:
            await client.handle("request_cancel").result()
        assert cancelled.value.status == "cancelled"
        assert [each.status async for each in client.list("workflow_id = 'abandon'")] == ["running"]
        # However it ends: by an operator, too, and a child that nobody could run.
        parent = await client.start_workflow(starts_and_waits, "of-terminated", id="is-terminated")

        async def has_child() -> bool:
            return await client.count("workflow_id = 'of-terminated'") == 1

        await until(has_child)
        await parent.terminate("enough")
        with pytest.raises(WorkflowFailedError, match="was terminated"):
            await client.handle("of-terminated").result()

        async def is_seen_to() -> bool:
            return await client.internals.store.read_parting("default", 10) is None

        await until(is_seen_to)


@workflow.defn
async def cancels(kind: str) -> str:
    child = await workflow.start_child_workflow(
        sleeps,
        id=f"cancelled-{kind}",
        cancellation_type=ChildWorkflowCancellationType(kind),
        parent_close_policy=ParentClosePolicy.ABANDON,
    )
    child.cancel("enough")
    try:
        await child
    except asyncio.CancelledError:
        return "cancelled"
    return "never"


async def test_cancelling_a_handle_does_what_its_type_says(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, cancels, sleeps):
        for kind in ChildWorkflowCancellationType:
            parent = await client.start_workflow(cancels, kind.value, id=kind.value)
            assert await parent.result() == "cancelled"
            types = [each.type for each in (await parent.history()).events]
            child = client.handle(f"cancelled-{kind.value}")
            if kind is ChildWorkflowCancellationType.ABANDON:
                assert "ChildCancelRequested" not in types
                assert (await child.describe()).summary.status == "running"
                await child.terminate()
                continue
            # Only one kind has waited for the end.
            waited = kind is ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED
            assert ("ChildClosed" in types) is waited
            assert ("MessageDelivered" in types) is (kind is ChildWorkflowCancellationType.WAIT_CANCELLATION_REQUESTED)
            with pytest.raises(WorkflowFailedError) as ended:
                await child.result()
            assert ended.value.status == "cancelled"


@workflow.defn
async def far_away(number: int) -> int:
    return await workflow.execute_child_workflow(plus_one, number, id=f"far-{number}", task_queue="far")


async def test_a_child_of_another_process_tells_its_parent_wherever_that_is(ledger: Ledger) -> None:
    # The parent leaves memory while it waits, and its worker's process knows nothing of the child.
    async with ledger.connect() as client, ledger.worker(client, far_away, sleeps, max_cached_runs=1):
        handle = await client.start_workflow(far_away, 41, id="parent")
        await client.start_workflow(sleeps, id="takes its place")
        with worker_process(ledger, plus_one, add, task_queue="far"):
            assert await handle.result() == 42


@workflow.defn
async def asks_for_what_cannot_be(what: str) -> str:
    try:
        match what:
            case "retries":
                workflow.start_child_workflow(sleeps, retry_policy=3)  # type: ignore[call-overload]
            case "no workflow":
                workflow.start_child_workflow(add)
            case "arguments":
                workflow.start_child_workflow(plus_one, 1, 2, 3)
            case "policy":
                workflow.start_child_workflow(sleeps, parent_close_policy="abandon")  # type: ignore[call-overload]
            case "timeout":
                workflow.start_child_workflow(sleeps, run_timeout=timedelta(0))
            case "id":
                workflow.start_child_workflow(sleeps, id="")
            case "taken":
                await workflow.start_child_workflow(sleeps, id=workflow.info().workflow_id)
    except (UsageError, WorkflowAlreadyStartedError) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was said"


@pytest.mark.parametrize(
    ("what", "error", "text"),
    [
        ("retries", UsageError, "runs are not retried, their activities are"),
        ("no workflow", UsageError, "is not a workflow"),
        ("arguments", UsageError, "was given 3 arguments"),
        ("policy", InvalidPolicyError, "must be a ParentClosePolicy"),
        ("timeout", InvalidPolicyError, "must be more than 0"),
        ("id", UsageError, "empty id"),
        ("taken", WorkflowAlreadyStartedError, "id_reuse_policy=ALLOW_DUPLICATE"),
    ],
)
async def test_what_cannot_be_is_said_at_the_line_that_asks(
    file_ledger: Ledger, what: str, error: type[Exception], text: str
) -> None:
    async with file_ledger.connect() as client, file_ledger.worker(client, asks_for_what_cannot_be, sleeps):
        told = await client.execute_workflow(asks_for_what_cannot_be, what, id=what.replace(" ", "-"))
    assert told.startswith(f"{error.__name__}: ")
    assert text in told
