"""What `workflow.defn` and `activity.defn` make of functions and classes, and what they refuse."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from pledger import RetryPolicy, activity, workflow
from pledger.errors import InvalidPolicyError, UsageError
from pledger.history import events
from pledger.history.retry import RetryPolicyRecord
from pledger.machine.definitions import WorkflowDefinition
from tests.unit.machine.harness import DrivenRun, signal

Drive = Callable[..., DrivenRun]


@activity.defn
async def charge_card(order: str, amount: int = 1, *, currency: str = "EUR") -> str:
    return f"{order} {amount} {currency}"


# Workflows ------------------------------------------------------------------------------------------------------------


def test_a_function_is_a_workflow_by_its_name() -> None:
    @workflow.defn
    async def fulfil(order: str) -> str:
        return order

    @workflow.defn(name="Fulfil", deadline=timedelta(hours=48), owner="fulfilment")
    async def other(order: str) -> str:
        return order

    assert WorkflowDefinition.of(fulfil).name == "fulfil"
    definition = WorkflowDefinition.of(other)
    assert (definition.name, definition.deadline, definition.owner) == ("Fulfil", timedelta(hours=48), "fulfilment")


def test_a_class_is_known_by_itself_and_by_its_run_method() -> None:
    @workflow.defn
    class Order:
        @workflow.run
        async def go(self) -> None: ...

        @workflow.signal(name="dispatch")
        def dispatched(self, at: str) -> None: ...

        @workflow.query
        def status(self) -> str:
            return ""

    definition = WorkflowDefinition.of(Order)
    assert definition is WorkflowDefinition.of(Order.go)
    assert definition.name == "Order"
    assert {name: handler.attribute for name, handler in definition.signals.items()} == {"dispatch": "dispatched"}
    assert list(definition.queries) == ["status"]


def test_a_subclass_is_no_workflow_until_it_says_so() -> None:
    @workflow.defn
    class Base:
        @workflow.run
        async def run(self) -> str:
            return "base"

        @workflow.signal
        def note(self) -> None: ...

    class Plain(Base):
        pass

    with pytest.raises(UsageError, match=r"is not a workflow: decorate it with @workflow\.defn"):
        WorkflowDefinition.of(Plain)

    @workflow.defn
    class Derived(Base):
        pass

    assert WorkflowDefinition.of(Derived).name == "Derived"
    assert list(WorkflowDefinition.of(Derived).signals) == ["note"]
    assert WorkflowDefinition.of(Base).name == "Base"


def test_what_is_no_workflow_is_refused() -> None:
    with pytest.raises(UsageError, match="must be an async function or a class with a run method"):
        workflow.defn(lambda: None)

    class NoRun:
        pass

    with pytest.raises(UsageError, match=r"needs exactly one method decorated with @workflow\.run, has 0"):
        workflow.defn(NoRun)

    class TwoRuns:
        @workflow.run
        async def one(self) -> None: ...

        @workflow.run
        async def two(self) -> None: ...

    with pytest.raises(UsageError, match="has 2"):
        workflow.defn(TwoRuns)

    class PlainRun:
        @workflow.run
        def run(self) -> None: ...

    with pytest.raises(UsageError, match="its run method 'run' must be async"):
        workflow.defn(PlainRun)

    class AsyncQuery:
        @workflow.run
        async def run(self) -> None: ...

        @workflow.query
        async def status(self) -> None: ...

    with pytest.raises(UsageError, match="the query 'status' must be a plain method: it may not wait"):
        workflow.defn(AsyncQuery)

    class TwoHandlers:
        @workflow.run
        async def run(self) -> None: ...

        @workflow.signal(name="note")
        def one(self) -> None: ...

        @workflow.signal(name="note")
        def two(self) -> None: ...

    with pytest.raises(UsageError, match="two handlers for the signal 'note'"):
        workflow.defn(TwoHandlers)


def test_a_deadline_is_in_the_future() -> None:
    with pytest.raises(InvalidPolicyError, match="it must be more than 0"):
        workflow.defn(deadline=timedelta(0))(lambda: None)


def test_keyword_only_parameters_keep_their_names(drive: Drive) -> None:
    @workflow.defn
    class Fulfil:
        @workflow.init
        def __init__(self, order: str, *, express: bool = False) -> None:
            self.noted = [order, express]

        @workflow.run
        async def run(self, order: str, *, express: bool = False) -> list[object]:
            return [*self.noted, await charge_card(order, currency="USD"), express]

        @workflow.signal
        def note(self, text: str, *, loud: bool = False) -> None:
            self.noted.append(text.upper() if loud else text)

        @workflow.query
        def notes(self, *, last: int = 1) -> list[object]:
            return self.noted[-last:]

    run = drive(Fulfil, "A1")
    commands = run.start(signal("note", "fragile", True))
    assert commands == [
        events.ScheduleActivity("charge_card", b'["A1",1,"USD"]', events.ActivityOptions(start_to_close_ms=600_000))
    ]
    assert run.machine.query("notes", b"[2]") == b'[false,"FRAGILE"]'
    run.complete(run.event_id_of("charge_card"), "charged")
    assert run.result == ["A1", False, "FRAGILE", "charged", False]


def test_outside_of_workflow_code_its_api_says_so() -> None:
    for call in (workflow.now, workflow.time, workflow.info, workflow.uuid4, workflow.random):
        with pytest.raises(UsageError, match=rf"workflow\.{call.__name__} works only in workflow code"):
            call()
    with pytest.raises(UsageError, match=r"workflow\.patched works only in workflow code"):
        workflow.patched("new")
    assert not workflow.in_workflow()


# Activities -----------------------------------------------------------------------------------------------------------


def test_outside_of_workflow_code_an_activity_is_its_function() -> None:
    @activity.defn
    def double(number: int) -> int:
        return 2 * number

    assert double(21) == 42
    assert asyncio.run(charge_card("A1", currency="USD")) == "A1 1 USD"
    assert repr(double) == "<activity 'double'>"


def test_the_contract_of_a_step_stands_at_its_definition_and_is_overridden_at_the_call(drive: Drive) -> None:
    @activity.defn(
        name="charge",
        start_to_close_timeout=timedelta(seconds=30),
        heartbeat_timeout=timedelta(seconds=5),
        retry_policy=RetryPolicy(maximum_attempts=8, non_retryable_error_types=["CardDeclined"]),
        idempotency_key=lambda order: f"charge-{order}",
        task_queue="payments",
        cancellation_type="wait",
    )
    async def charge(order: str) -> str:
        return order

    @workflow.defn
    async def fulfil() -> None:
        await charge("A1")
        await workflow.execute_activity(
            charge,
            "A1",
            start_to_close_timeout=timedelta(seconds=1),
            schedule_to_close_timeout=timedelta(minutes=1),
            retry_policy=RetryPolicy(maximum_attempts=1),
            task_queue="slow",
            idempotency_key="by hand",
            cancellation_type="abandon",
        )

    run = drive(fulfil)
    retry = RetryPolicyRecord(maximum_attempts=8, non_retryable_error_types=("CardDeclined",))
    assert run.start() == [
        events.ScheduleActivity(
            "charge",
            b'["A1"]',
            events.ActivityOptions(30_000, None, None, 5_000, retry, "wait"),
            "payments",
            "charge-A1",
        )
    ]
    assert run.complete(2, "charged") == [
        events.ScheduleActivity(
            "charge",
            b'["A1"]',
            events.ActivityOptions(1_000, 60_000, None, 5_000, RetryPolicyRecord(maximum_attempts=1), "abandon"),
            "slow",
            "by hand",
        )
    ]


def test_an_activity_of_another_program_is_called_by_its_name(drive: Drive) -> None:
    @workflow.defn
    async def fulfil() -> dict[str, int]:
        return await workflow.execute_activity("charge", "A1", result_type=dict[str, int])

    run = drive(fulfil)
    assert run.start() == [
        events.ScheduleActivity("charge", b'["A1"]', events.ActivityOptions(start_to_close_ms=600_000))
    ]
    run.complete(2, {"cents": 100})
    assert run.result == {"cents": 100}


def test_every_step_is_bounded_by_default() -> None:
    assert charge_card.record == events.ActivityOptions(start_to_close_ms=600_000)
    whole = activity.defn(schedule_to_close_timeout=timedelta(hours=1))(charge_card.fn)
    assert whole.record == events.ActivityOptions(schedule_to_close_ms=3_600_000)


@pytest.mark.parametrize("option", ["start_to_close", "schedule_to_close", "schedule_to_start", "heartbeat"])
@pytest.mark.parametrize("value", [timedelta(0), timedelta(seconds=-1), 5])
def test_timeouts_out_of_range_are_refused(option: str, value: object) -> None:
    with pytest.raises(InvalidPolicyError, match=f"{option}_timeout is "):
        activity.defn(**{f"{option}_timeout": value})  # type: ignore[call-overload]


def test_other_options_out_of_range_are_refused() -> None:
    with pytest.raises(InvalidPolicyError, match="cancellation_type is 'hard'"):
        activity.defn(cancellation_type="hard")  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="an async function runs on the loop"):
        activity.defn(executor="thread")(charge_card.fn)
    with pytest.raises(UsageError, match="a plain function runs in a thread or a process"):
        activity.defn(executor="async")(lambda: None)


def test_what_is_no_activity_is_refused_in_a_workflow(drive: Drive) -> None:
    @workflow.defn
    async def fulfil() -> None:
        await workflow.execute_activity(print, "A1")  # type: ignore[arg-type]

    with pytest.raises(UsageError, match=r"is not an activity: decorate it with @activity\.defn, or give its name"):
        drive(fulfil).start()


def test_a_call_with_wrong_arguments_fails_like_the_call_itself(drive: Drive) -> None:
    @workflow.defn
    async def fulfil() -> None:
        await charge_card()  # type: ignore[call-arg]

    with pytest.raises(TypeError, match=r"charge_card\(\) cannot be called so: missing a required argument: 'order'"):
        drive(fulfil).start()


def test_a_method_is_no_activity_but_that_of_an_object_is() -> None:
    def send(self: object, text: str) -> str:
        return text

    with pytest.raises(UsageError, match=r"'.*send' is a method, and .*activity\.defn\(mailer\.send\)"):
        activity.defn(send)

    class Mailer:
        def send(self, text: str) -> str:
            return f"sent {text}"

    assert activity.defn(Mailer().send)("it") == "sent it"
