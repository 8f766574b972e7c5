"""What fails a run, and what blocks it: declared failures end it, anything else is a bug and leaves its state alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from pledger import activity, workflow
from pledger.errors import (
    ActivityError,
    ApplicationError,
    InternalError,
    PayloadError,
    PayloadTooLargeError,
    TerminatedError,
    UsageError,
    WorkerLostError,
)
from pledger.errors import TimeoutError as PledgerTimeoutError
from pledger.history import events
from tests.unit.machine.harness import DrivenRun, completed, kinds, signal

Drive = Callable[..., DrivenRun]


class OutOfStock(Exception):  # noqa: N818 - the shop's word for it
    pass


class OutOfEverything(OutOfStock):
    pass


@activity.defn
async def charge_card(order: str) -> str:
    return order


def raising(error: BaseException, **options: object) -> Callable[..., object]:
    @workflow.defn(name="fulfil", **options)  # type: ignore[call-overload]
    async def fulfil() -> None:
        raise error

    return fulfil  # type: ignore[no-any-return]


# What fails it --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "kind", "type_"),
    [
        (ApplicationError("declined", type="CardDeclined"), "application", "CardDeclined"),
        (ApplicationError("declined"), "application", "ApplicationError"),
        (ActivityError("failed", activity_type="charge_card"), "activity", "ActivityError"),
        (PledgerTimeoutError("late", kind="run"), "timeout", "TimeoutError"),
        (WorkerLostError("lost"), "worker_lost", "WorkerLostError"),
        (TerminatedError("ended"), "terminated", "TerminatedError"),
        (TimeoutError("late"), "application", "TimeoutError"),
        (asyncio.CancelledError("stop"), "cancelled", "CancelledError"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else value,
)
def test_a_declared_failure_fails_the_run(drive: Drive, error: BaseException, kind: str, type_: str) -> None:
    run = drive(raising(error))
    assert kinds(run.start()) == ["FailRun"]
    assert (run.failure.kind, run.failure.type) == (kind, type_)


def test_the_failure_keeps_details_cause_and_traceback(drive: Drive) -> None:
    @workflow.defn
    async def fulfil() -> None:
        try:
            {}["missing"]
        except KeyError as error:
            raise ApplicationError("no such order", {"order": "A1"}, 7, type="Unknown", non_retryable=True) from error

    run = drive(fulfil)
    run.start()
    failure = run.failure
    assert failure.details == b'[{"order":"A1"},7]'
    assert failure.non_retryable
    assert failure.cause is not None
    assert (failure.cause.type, failure.cause.message) == ("KeyError", "'missing'")
    assert "in fulfil" in failure.traceback
    assert "test_failing_and_blocking.py" in failure.traceback


@pytest.mark.parametrize("error", [OutOfStock("tea"), OutOfEverything("tea")])
def test_named_types_and_their_subclasses_fail_it(drive: Drive, error: Exception) -> None:
    run = drive(raising(error, failure_exception_types=[OutOfStock]))
    run.start()
    assert (run.failure.type, run.failure.message) == (type(error).__name__, "tea")


def test_an_activity_that_nobody_caught_fails_it_with_its_cause(drive: Drive) -> None:
    @workflow.defn
    async def fulfil() -> str:
        return await charge_card("A1")

    run = drive(fulfil)
    run.start()
    run.fail(2, ApplicationError("declined", type="CardDeclined"), "non_retryable")
    failure = run.failure
    assert failure.message == (
        "activity 'charge_card' (event 2) failed after 1 attempt, non_retryable: CardDeclined: declined"
    )
    assert failure.attributes == {
        "activity_type": "charge_card",
        "scheduled_event_id": 2,
        "attempt": 1,
        "retry_state": "non_retryable",
    }
    assert failure.cause is not None
    assert failure.cause.type == "CardDeclined"


def test_a_group_of_declared_failures_fails_it_and_its_first_one_is_the_cause(drive: Drive) -> None:
    @workflow.defn
    async def fulfil() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(charge_card("A1"))
            group.create_task(charge_card("A2"))

    run = drive(fulfil)
    run.start()
    run.fail(3, ApplicationError("declined", type="CardDeclined"))
    assert run.failure.type == "ExceptionGroup"
    assert run.failure.cause is not None
    assert run.failure.cause.kind == "activity"
    assert run.failure.cause.cause is not None
    assert run.failure.cause.cause.type == "CardDeclined"


def test_nested_groups_are_judged_by_what_is_in_them(drive: Drive) -> None:
    declared = ExceptionGroup("all", [ApplicationError("a"), ExceptionGroup("inner", [TimeoutError("b")])])
    assert kinds(drive(raising(declared)).start()) == ["FailRun"]
    with_a_bug = ExceptionGroup("all", [ApplicationError("a"), ExceptionGroup("inner", [ValueError("b")])])
    with pytest.raises(ExceptionGroup):
        drive(raising(with_a_bug)).start()


def test_a_failed_run_starts_nothing_any_more(drive: Drive) -> None:
    """What the last activation asked for was never promised to anybody."""

    @workflow.defn
    async def fulfil() -> None:
        workflow.start_activity(charge_card, "A1")
        asyncio.get_running_loop().call_later(5, print)
        raise ApplicationError("no")

    assert kinds(drive(fulfil).start()) == ["FailRun"]


# What blocks it -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a bug"),
        AssertionError("a bug"),
        KeyError("a bug"),
        OutOfStock("undeclared"),
        UsageError("a bug"),
        PayloadError("a bug"),
        RuntimeError("a bug"),
        SystemExit("a bug"),
        GeneratorExit("a bug"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_anything_else_is_a_bug(drive: Drive, error: BaseException) -> None:
    run = drive(raising(error))
    with pytest.raises(type(error)) as caught:
        run.start()
    assert caught.value is error
    assert run.transitions == []


def test_a_bug_later_on_leaves_what_was_before(drive: Drive) -> None:
    fixed = {"is": False}

    @workflow.defn
    async def fulfil() -> str:
        result = await charge_card("A1")
        return result if fixed["is"] else result.no_such_attribute  # type: ignore[attr-defined, no-any-return]

    run = drive(fulfil)
    run.start()
    with pytest.raises(AttributeError):
        run.complete(2, "charged")
    # The transition is not committed; with fitting code the same input is taken again.
    assert len(run.events) == 2
    fixed["is"] = True
    run.reload()
    run.complete(2, "charged")
    assert run.result == "charged"


def test_a_result_that_cannot_be_kept_is_a_bug(drive: Drive) -> None:
    @workflow.defn
    async def fulfil() -> object:
        return object()

    with pytest.raises(PayloadError, match=r"the result of .*fulfil\(\) cannot be kept"):
        drive(fulfil).start()


def test_a_result_over_the_limit_is_a_bug(drive: Drive) -> None:
    @workflow.defn
    async def fulfil() -> str:
        return "x" * 2_000

    with pytest.raises(PayloadTooLargeError) as caught:
        drive(fulfil, payload_bytes_max=1_000).start()
    assert "the result of workflow 'order-7421' (fulfil, run 01J9X)" in str(caught.value)
    assert (caught.value.size_bytes, caught.value.size_bytes_max) == (2_002, 1_000)


def test_encoding_errors_are_raised_at_the_producing_line(drive: Drive) -> None:
    """So that the code may handle them, and the traceback shows the line."""

    @workflow.defn
    async def fulfil() -> list[str]:
        told = []
        try:
            charge_card(object())  # type: ignore[arg-type]
        except PayloadError as error:
            told.append(str(error).partition(":")[0])
        try:
            charge_card("x" * 2_000)
        except PayloadTooLargeError as error:
            told.append(str(error).partition(" has ")[0])
        return told

    run = drive(fulfil, payload_bytes_max=1_000)
    run.start()
    assert run.result == [
        "the argument order of charge_card() cannot be kept",
        "the input of activity 'charge_card' in workflow 'order-7421' (fulfil, run 01J9X)",
    ]


def test_a_result_that_does_not_fit_its_annotation_is_raised_where_it_is_awaited(drive: Drive) -> None:
    @workflow.defn
    async def fulfil() -> str:
        try:
            return await charge_card("A1")
        except PayloadError as error:
            return str(error).partition(":")[0]

    run = drive(fulfil)
    run.start()
    run.complete(2, {"not": "a text"})
    assert run.result == "the result of charge_card() cannot be read"


def test_a_forbidden_call_blocks_even_when_the_code_swallows_it(drive: Drive) -> None:
    @workflow.defn
    async def fulfil() -> str:
        try:
            asyncio.get_running_loop().run_in_executor(None, print)
        except Exception:  # noqa: BLE001 - what users do
            return "swallowed"
        return "called"

    with pytest.raises(Exception, match=r"loop\.run_in_executor"):
        drive(fulfil).start()


# Signal handlers fail and block like the run method -------------------------------------------------------------------


@workflow.defn(failure_exception_types=[OutOfStock])
class Order:
    @workflow.run
    async def run(self) -> None:
        await asyncio.Event().wait()

    @workflow.signal
    def raise_plainly(self, name: str) -> None:
        raise ERRORS[name]

    @workflow.signal
    async def raise_later(self, name: str) -> None:
        await asyncio.sleep(0)
        raise ERRORS[name]

    @workflow.signal
    async def give_up(self) -> None:
        raise asyncio.CancelledError


ERRORS = {
    "declared": ApplicationError("declined", type="CardDeclined"),
    "named": OutOfStock("tea"),
    "bug": ValueError("a bug"),
}


@pytest.mark.parametrize("handler", ["raise_plainly", "raise_later"])
@pytest.mark.parametrize(("error", "type_"), [("declared", "CardDeclined"), ("named", "OutOfStock")])
@pytest.mark.parametrize("before_the_start", [False, True])
def test_a_declared_failure_of_a_handler_fails_the_run(
    drive: Drive, handler: str, error: str, type_: str, before_the_start: bool
) -> None:
    run = drive(Order)
    if before_the_start:
        commands = run.start(signal(handler, error))
    else:
        run.start()
        commands = run.signal(handler, error)
    assert kinds(commands) == ["FailRun"]
    assert run.failure.type == type_


@pytest.mark.parametrize("handler", ["raise_plainly", "raise_later"])
@pytest.mark.parametrize("before_the_start", [False, True])
def test_a_bug_of_a_handler_blocks_the_run(drive: Drive, handler: str, before_the_start: bool) -> None:
    run = drive(Order)
    if before_the_start:
        with pytest.raises(ValueError, match="a bug"):
            run.start(signal(handler, "bug"))
    else:
        run.start()
        with pytest.raises(ValueError, match="a bug"):
            run.signal(handler, "bug")


def test_a_handler_that_is_cancelled_is_no_end_of_the_run(drive: Drive) -> None:
    run = drive(Order)
    run.start()
    assert run.signal("give_up") == []


def test_nothing_is_taken_in_after_a_handler_failed_the_run(drive: Drive) -> None:
    """What came after the end is undelivered, as it is after the run method's end."""
    run = drive(Order)
    run.start()
    run.feed(signal("raise_plainly", "declared"), signal("give_up"))
    assert kinds(run.events) == ["RunStarted", "SignalReceived", "FailRun"]


# How a history ends without its code ----------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [events.RunTerminated("enough"), events.RunTimedOut()], ids=["terminated", "timed out"])
def test_the_code_is_not_told_of_an_end_from_outside(drive: Drive, end: events.Input) -> None:
    told: list[str] = []

    @workflow.defn
    async def fulfil() -> None:
        try:
            await charge_card("A1")
        except BaseException:
            told.append("heard of it")
            raise

    run = drive(fulfil)
    run.start()
    assert run.feed(end) == []
    assert told == []


@pytest.mark.parametrize("end", [events.RunTerminated("enough"), events.RunTimedOut()], ids=["terminated", "timed out"])
def test_a_run_may_end_before_it_began(drive: Drive, end: events.Input) -> None:
    """Nobody had taken it yet; its history is that end and nothing else, and replays."""
    run = drive(raising(ValueError("never runs")))
    assert run.feed(end) == []
    assert run.events == [end]


def test_a_history_cannot_begin_with_anything_else(drive: Drive) -> None:
    run = drive(raising(ValueError("never runs")))
    with pytest.raises(InternalError, match="its first input is ActivityCompleted"):
        run.feed(completed(2, "charged"))


# What is hardly meant -------------------------------------------------------------------------------------------------


def test_activities_that_are_called_and_not_awaited_before_the_end_are_named_once(drive: Drive) -> None:
    @workflow.defn
    async def forgets() -> str:
        await charge_card("first")
        charge_card("second")
        return "paid"

    run = drive(forgets)
    run.start()
    assert run.machine.unstarted == ()
    assert kinds(run.complete(run.event_id_of("charge_card"), "first")) == ["CompleteRun"]
    assert run.machine.unstarted == ("charge_card",)
    run.reload()
    assert run.machine.unstarted == ()  # what was told once is not told again on replay


def test_an_activity_that_is_cancelled_before_the_end_is_not_named(drive: Drive) -> None:
    @workflow.defn
    async def changes_its_mind() -> str:
        workflow.start_activity(charge_card, "first").cancel()
        return "paid"

    run = drive(changes_its_mind)
    run.start()
    assert (run.result, run.machine.unstarted) == ("paid", ())
