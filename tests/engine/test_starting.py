"""Starting runs: idempotency, the policies for taken ids, deadlines, and what is refused."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pledger import Client, activity, workflow
from pledger.client import IdConflictPolicy, IdReusePolicy
from pledger.errors import (
    ApplicationError,
    InvalidPolicyError,
    PayloadError,
    PayloadTooLargeError,
    TerminatedError,
    UnknownWorkflowError,
    UsageError,
    WorkflowAlreadyStartedError,
    WorkflowFailedError,
    WorkflowNotFoundError,
)
from pledger.errors import TimeoutError as PledgerTimeoutError
from tests.engine.harness import Ledger, until


@workflow.defn
async def greet(name: str, *, times: int = 1) -> str:
    return f"hello {name}" * times


@workflow.defn
async def waits(name: str) -> None:
    await asyncio.Event().wait()


@workflow.defn
async def fails(name: str) -> None:
    raise ApplicationError("no", type="No")


# The same start twice -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("definition", [greet, waits], ids=["closed", "open"])
async def test_the_same_id_with_the_same_input_is_the_same_run(ledger: Ledger, definition: Any) -> None:
    async with ledger.connect() as client, ledger.worker(client, greet, waits):
        first = await client.start_workflow(definition, "Ada", id="order-1")
        if definition is greet:
            await first.result()
        second = await client.start_workflow(definition, "Ada", id="order-1")
        assert second.run_id == first.run_id
        assert await client.count() == 1


async def test_a_start_is_the_same_from_another_process(ledger: Ledger) -> None:
    async with ledger.connect() as one, ledger.connect() as other, ledger.worker(one, greet):
        first = await one.start_workflow(greet, "Ada", id="order-1")
        second = await other.start_workflow(greet, "Ada", id="order-1")
        assert second.run_id == first.run_id
        assert await second.result() == "hello Ada"


async def test_many_starts_at_once_make_one_run(ledger: Ledger) -> None:
    async with ledger.connect() as one, ledger.connect() as other, ledger.worker(one, greet):
        starts = [client.start_workflow(greet, "Ada", id="order-1") for client in (one, other) for _ in range(10)]
        handles = await asyncio.gather(*starts)
        assert len({handle.run_id for handle in handles}) == 1


@pytest.mark.parametrize("definition", [greet, waits], ids=["closed", "open"])
async def test_two_inputs_under_one_id_are_refused(ledger: Ledger, definition: Any) -> None:
    async with ledger.connect() as client, ledger.worker(client, greet, waits):
        first = await client.start_workflow(definition, "Ada", id="order-1")
        if definition is greet:
            await first.result()
        with pytest.raises(WorkflowAlreadyStartedError) as caught:
            await client.start_workflow(definition, "Bob", id="order-1")
        status = "completed" if definition is greet else "running"
        assert str(caught.value) == (
            f"workflow id 'order-1' is taken by run {first.run_id} ({status}) with another input. "
            f"Use another id for another piece of work, or choose an id_reuse_policy / id_conflict_policy"
        )
        assert (caught.value.workflow_id, caught.value.run_id) == ("order-1", first.run_id)


async def test_another_type_under_one_id_is_refused(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, greet, waits):
        await client.start_workflow(greet, "Ada", id="order-1")
        with pytest.raises(WorkflowAlreadyStartedError, match="of type 'greet'"):
            await client.start_workflow(waits, "Ada", id="order-1")


# Policies -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "after", "same_input", "other_input"),
    [
        (IdReusePolicy.SAME_INPUT, greet, "same", "refused"),
        (IdReusePolicy.SAME_INPUT, fails, "same", "refused"),
        (IdReusePolicy.ALLOW_DUPLICATE, greet, "new", "new"),
        (IdReusePolicy.ALLOW_DUPLICATE, fails, "new", "new"),
        (IdReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY, greet, "refused", "refused"),
        (IdReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY, fails, "new", "new"),
        (IdReusePolicy.REJECT_DUPLICATE, greet, "refused", "refused"),
        (IdReusePolicy.REJECT_DUPLICATE, fails, "refused", "refused"),
    ],
    ids=lambda value: getattr(value, "value", None) or getattr(value, "__name__", value),
)
async def test_what_a_start_makes_of_a_closed_run(
    ledger: Ledger, policy: IdReusePolicy, after: Any, same_input: str, other_input: str
) -> None:
    async with ledger.connect() as client, ledger.worker(client, greet, fails):
        for name, expected in (("Ada", same_input), ("Bob", other_input)):
            earlier = await client.start_workflow(after, "Ada", id=f"order-{name}")
            with contextlib.suppress(WorkflowFailedError):
                await earlier.result()
            assert await outcome(client, after, name, earlier, id_reuse_policy=policy) == expected


@pytest.mark.parametrize(
    ("policy", "same_input", "other_input"),
    [
        (IdConflictPolicy.SAME_INPUT, "same", "refused"),
        (IdConflictPolicy.FAIL, "refused", "refused"),
        (IdConflictPolicy.USE_EXISTING, "same", "same"),
        (IdConflictPolicy.TERMINATE_EXISTING, "new", "new"),
    ],
    ids=lambda value: getattr(value, "value", value),
)
async def test_what_a_start_makes_of_an_open_run(
    ledger: Ledger, policy: IdConflictPolicy, same_input: str, other_input: str
) -> None:
    async with ledger.connect() as client, ledger.worker(client, waits):
        for name, expected in (("Ada", same_input), ("Bob", other_input)):
            earlier = await client.start_workflow(
                waits, "Ada", id="order-1", id_conflict_policy=IdConflictPolicy.TERMINATE_EXISTING
            )
            assert await outcome(client, waits, name, earlier, id_conflict_policy=policy) == expected
            if expected == "new":
                with pytest.raises(WorkflowFailedError) as caught:
                    await earlier.result()
                assert isinstance(caught.value.__cause__, TerminatedError)


async def outcome(client: Client, definition: Any, name: str, earlier: Any, **policies: Any) -> str:
    """What one more start under the id of an earlier run gives."""
    try:
        handle = await client.start_workflow(definition, name, id=earlier.workflow_id, **policies)
    except WorkflowAlreadyStartedError:
        return "refused"
    return "same" if handle.run_id == earlier.run_id else "new"


async def test_the_newest_run_of_an_id_is_the_one_without_a_run_id(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, greet):
        await client.execute_workflow(greet, "Ada", id="order-1")
        newest = await client.start_workflow(greet, "Bob", id="order-1", id_reuse_policy=IdReusePolicy.ALLOW_DUPLICATE)
        assert await newest.result() == "hello Bob"
        assert await client.handle("order-1", workflow=greet).result() == "hello Bob"


# Before any worker ----------------------------------------------------------------------------------------------------


async def test_a_run_started_before_any_worker_waits_for_one(ledger: Ledger) -> None:
    async with ledger.connect() as client:
        handle = await client.start_workflow(greet, "Ada", id="order-1")
        assert (await handle.describe()).state.status == "running"
    async with ledger.connect() as client, ledger.worker(client, greet):
        assert await client.handle("order-1", workflow=greet).result() == "hello Ada"


async def test_a_run_is_started_by_name_where_another_program_defines_it(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.connect() as other, ledger.worker(other, greet):
        assert await client.execute_workflow("greet", "Ada", id="order-1") == "hello Ada"


async def test_a_run_goes_to_the_queue_that_it_names(ledger: Ledger) -> None:
    @workflow.defn
    async def where() -> str:
        return workflow.info().task_queue

    async with (
        ledger.connect() as client,
        ledger.worker(client, greet),
        ledger.worker(client, where, task_queue="express"),
    ):
        assert await client.execute_workflow(where, id="order-1", task_queue="express") == "express"


async def test_a_run_may_be_terminated_before_any_worker_took_it(ledger: Ledger) -> None:
    async with ledger.connect() as client:
        handle = await client.start_workflow(greet, "Ada", id="order-1")
        await handle.terminate("changed my mind")
        described = await handle.describe()
        assert (described.state.status, described.state.reason) == ("terminated", "changed my mind")
    ledger.definitions["greet"] = greet


# Deadlines ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stated", ["at the start", "at the definition"])
async def test_a_run_times_out_at_its_deadline(ledger: Ledger, stated: str) -> None:
    short = timedelta(milliseconds=50)

    @workflow.defn(deadline=short if stated == "at the definition" else None)
    async def never() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            workflow.logger.error("the code is not told")

    async with ledger.connect() as client, ledger.worker(client, never):
        handle = await client.start_workflow(
            never, id="order-1", execution_timeout=short if stated == "at the start" else None
        )
        with pytest.raises(WorkflowFailedError) as caught:
            await handle.result()
        assert caught.value.status == "timed_out"
        assert isinstance(caught.value.__cause__, PledgerTimeoutError)
        assert caught.value.__cause__.kind == "run"
        assert [event.type for event in (await handle.history()).events][-1] == "RunTimedOut"


async def test_a_run_may_time_out_before_any_worker_takes_it(ledger: Ledger) -> None:
    async with ledger.connect() as client:
        handle = await client.start_workflow(waits, "Ada", id="order-1", execution_timeout=timedelta(milliseconds=1))
        await asyncio.sleep(0.01)  # the deadline passes by the real clock
        async with ledger.worker(client, waits):
            with pytest.raises(
                WorkflowFailedError, match=r"^workflow 'order-1' \(waits, run \w+\) passed its deadline$"
            ):
                await handle.result()
        assert (await handle.describe()).state.status == "timed_out"


@pytest.mark.parametrize("by", ["its definition", "its name"])
async def test_a_run_knows_who_answers_for_it(ledger: Ledger, by: str) -> None:
    """Whoever starts it by name knows neither its owner nor its deadline; the worker that takes it does."""

    @workflow.defn(owner="fulfilment", deadline=timedelta(hours=1))
    async def owned() -> None:
        await workflow.wait_condition(lambda: False)

    async with ledger.connect() as client:
        handle = await client.start_workflow(owned if by == "its definition" else "owned", id="order-1")
        async with ledger.worker(client, owned):

            async def has_begun() -> bool:
                return (await handle.describe()).last_event > 0

            await until(has_begun)
        state = (await handle.describe()).state
        assert state.owner == "fulfilment"
        assert state.deadline_ms is not None
        # Counted from when it was asked for, which was before a worker began it.
        assert 0 <= state.started_ms + 3_600_000 - state.deadline_ms <= 60_000
        await handle.terminate()


# What is refused ------------------------------------------------------------------------------------------------------


async def test_a_start_needs_an_id(ledger: Ledger) -> None:
    async with ledger.connect() as client:
        with pytest.raises(UsageError, match="workflow 'greet' needs an id"):
            await client.start_workflow(greet, "Ada", id="")


@pytest.mark.parametrize("seconds", [0, -1])
async def test_a_timeout_that_would_be_over_at_once_is_refused(ledger: Ledger, seconds: int) -> None:
    limit = timedelta(seconds=seconds)
    async with ledger.connect() as client:
        with pytest.raises(InvalidPolicyError, match=rf"of workflow 'order-1' \(greet\) is {seconds} s; it must"):
            await client.start_workflow(greet, "Ada", id="order-1", execution_timeout=limit)


async def test_an_argument_that_cannot_be_kept_is_refused_at_the_start(ledger: Ledger) -> None:
    @workflow.defn
    async def takes(anything: Any) -> None: ...

    async with ledger.connect() as client:
        with pytest.raises(PayloadError, match=r"the argument anything of .*takes\(\) cannot be kept"):
            await client.start_workflow(takes, object(), id="order-1")
        with pytest.raises(WorkflowNotFoundError):
            await client.handle("order-1").describe()


async def test_a_naive_time_is_refused_where_a_zone_is_needed(ledger: Ledger) -> None:
    @workflow.defn
    async def at(when: datetime) -> datetime:
        return when

    when = datetime(2026, 11, 29, 18, 0)  # noqa: DTZ001 - the point of the test
    async with ledger.connect() as client, ledger.worker(client, at):
        with pytest.raises(PayloadError, match="zone"):
            await client.start_workflow(at, when, id="order-1")
        aware = when.replace(tzinfo=UTC)
        assert await client.execute_workflow(at, aware, id="order-1") == aware


async def test_an_input_over_the_limit_is_refused(ledger: Ledger) -> None:
    async with ledger.connect() as client:
        with pytest.raises(PayloadTooLargeError) as caught:
            await client.start_workflow(greet, "x" * 300_000, id="order-1")
        assert str(caught.value).startswith("the input of workflow 'order-1' (greet) has 300,004 bytes")


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ((), "was given 0 arguments: missing a required argument: 'name'"),
        (("Ada", 2), "was given 2 arguments: too many positional arguments"),
    ],
)
async def test_arguments_that_the_workflow_does_not_take_are_refused(
    ledger: Ledger, args: tuple[object, ...], told: str
) -> None:
    async with ledger.connect() as client:
        with pytest.raises(UsageError) as caught:
            await client.start_workflow(greet, *args, id="order-1")
        assert str(caught.value).startswith(
            f"the input of workflow 'order-1' (greet): greet(name, *, times=1) {told}. "
        )


async def test_an_argument_that_cannot_be_kept_is_refused_with_the_workflow_it_was_for(ledger: Ledger) -> None:
    async with ledger.connect() as client:
        with pytest.raises(PayloadError) as caught:
            await client.start_workflow(greet, object(), id="order-1")
        assert str(caught.value).startswith("the input of workflow 'order-1' (greet): the argument name of greet() ")
        assert caught.value.path == "$[0]"


async def test_an_unknown_type_is_refused_where_the_queue_is_served(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, greet):
        with pytest.raises(UnknownWorkflowError) as caught:
            await client.start_workflow("greeet", "Ada", id="order-1")
        assert str(caught.value) == (
            "the worker of task queue 'default' in this process does not know the workflow 'greeet'; it knows: greet. "
            "Add it to Worker(workflows=[...]), or name the queue of the worker that has it"
        )


async def test_what_is_no_workflow_is_refused(ledger: Ledger) -> None:
    async with ledger.connect() as client:
        with pytest.raises(UsageError, match="is not a workflow"):
            await client.start_workflow(print, id="order-1")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "a worker needs workflows or activities to run"),
        ({"workflows": [greet, greet]}, "two definitions of the workflow 'greet'"),
        ({"workflows": [print]}, "is not a workflow"),
        ({"activities": [greet]}, "is not an activity"),
        ({"workflows": [greet], "max_cached_runs": 0}, "must be at least 1"),
        ({"workflows": [greet], "max_concurrent_activities": 0}, "must be at least 1"),
        ({"workflows": [greet], "lease": timedelta(milliseconds=1)}, r"must be at least 0\.1 s"),
    ],
)
async def test_a_worker_that_cannot_be_is_refused(file_ledger: Ledger, options: dict[str, Any], message: str) -> None:
    from pledger import Worker  # noqa: PLC0415 - every other test makes its workers by the ledger

    async with file_ledger.connect() as client:
        with pytest.raises(UsageError, match=message):
            Worker(client, **options)


async def test_nothing_is_started_by_a_start_that_was_refused(ledger: Ledger) -> None:
    made: list[str] = []

    @activity.defn
    async def act(name: str) -> None:
        made.append(name)

    @workflow.defn
    async def acts(name: str) -> None:
        await act(name)

    async with ledger.connect() as client, ledger.worker(client, acts, act):
        await client.execute_workflow(acts, "Ada", id="order-1")
        with pytest.raises(WorkflowAlreadyStartedError):
            await client.start_workflow(acts, "Bob", id="order-1")
        await client.execute_workflow(acts, "Eve", id="order-2")
    assert made == ["Ada", "Eve"]


@pytest.mark.parametrize(
    ("given", "why"), [("x" * 1_001, "has 1001 characters"), ("a\ud800", "surrogate"), ("a\0b", "NUL")]
)
async def test_an_id_that_cannot_be_kept_is_refused(ledger: Ledger, given: str, why: str) -> None:
    """By every store alike, and wherever it is given: a ledger may move from one to the other."""
    async with ledger.connect() as client:
        with pytest.raises(UsageError, match=why):
            await client.start_workflow("greet", id=given)
        with pytest.raises(UsageError, match=why):
            await client.start_workflow("greet", id="order-1", task_queue=given)
        with pytest.raises(UsageError, match=why):
            client.handle(given)
        with pytest.raises(UsageError, match=why):
            client.handle("order-1", run_id=given)
