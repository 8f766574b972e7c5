"""Updates and handlers that are set as the code goes: when they run, what is recorded, what may only read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from pledger import activity, errors, workflow
from pledger.errors import NondeterminismError, UnknownUpdateError, UpdateRejectedError, UsageError
from pledger.history import events, payloads
from pledger.machine import updates
from tests.unit.machine.harness import DrivenRun, kinds, scheduled, signal

Drive = Callable[..., DrivenRun]


def update(name: str, *args: Any, update_id: str = "u1") -> events.UpdateAccepted:
    return events.UpdateAccepted(name, payloads.encode_args_untyped(args), update_id)


def judge(run: DrivenRun, sent: events.UpdateAccepted) -> None:
    """As a worker does before it records the update; it leaves no trace."""
    before = list(run.events)
    try:
        updates.validate(run.machine, sent)
    finally:
        assert run.events == before


@activity.defn
async def step(name: str) -> str:
    return name


@workflow.defn
class Cart:
    def __init__(self) -> None:
        self.items: list[str] = []
        self.done = False

    @workflow.run
    async def run(self) -> list[str]:
        await workflow.wait_condition(lambda: self.done)
        await workflow.wait_condition(workflow.all_handlers_finished)
        return self.items

    @workflow.update
    def add(self, item: str) -> int:
        """Takes an item."""
        self.items.append(item)
        return len(self.items)

    @add.validator
    def _check_add(self, item: str) -> None:
        if item in self.items:
            raise errors.ApplicationError("it is there already", type="Twice")

    @workflow.update(name="fetch-it")
    async def fetch(self, item: str) -> str:
        self.items.append(await step(item))
        return f"{item} is here"

    @workflow.update
    async def refuse(self) -> None:
        raise errors.ApplicationError("no", type="Refused")

    @workflow.update
    def breaks(self) -> None:
        raise KeyError("a bug")

    @workflow.update
    def who(self) -> str:
        found = workflow.current_update_info()
        return "nobody" if found is None else f"{found.name} {found.id}"

    @workflow.update
    def acts(self) -> None:
        """What its validator does is refused."""

    @acts.validator
    def _acts_in_vain(self) -> None:
        workflow.start_activity(step, "never")

    @workflow.update
    def draws(self) -> None: ...

    @draws.validator
    def _draws_in_vain(self) -> None:
        workflow.uuid4()

    @workflow.signal
    def finish(self) -> None:
        self.done = True


def completed_of(run: DrivenRun, update_id: str = "u1") -> events.CompleteUpdate:
    [found] = [e for e in run.events if isinstance(e, events.CompleteUpdate) and e.update_id == update_id]
    return found


def test_a_plain_update_is_accepted_and_completed_in_one_transition(drive: Drive) -> None:
    run = drive(Cart)
    run.start()
    assert kinds(run.feed(update("add", "lamp"))) == ["CompleteUpdate"]
    assert completed_of(run).result == b"1"
    assert run.machine.updates["u1"].completed


def test_an_async_update_goes_on_beside_the_run_method_and_over_a_replay(drive: Drive) -> None:
    run = drive(Cart)
    run.start()
    assert scheduled(run.feed(update("fetch-it", "lamp"), update("add", "chair", update_id="u2"))) == [("step", "lamp")]
    run.signal("finish")  # the run method waits for the handler
    run.reload()
    assert not run.machine.updates["u1"].completed
    assert kinds(run.complete(run.event_id_of("step"), "lamp")) == ["CompleteUpdate", "CompleteRun"]
    assert run.result == ["chair", "lamp"]
    assert completed_of(run).result == b'"lamp is here"'


def test_a_declared_failure_is_the_updates_and_not_the_runs(drive: Drive) -> None:
    run = drive(Cart)
    run.start()
    run.feed(update("refuse"))
    failure = completed_of(run).failure
    assert failure is not None
    assert (failure.type, failure.message) == ("Refused", "no")
    run.signal("finish")
    assert run.result == []


def test_a_bug_in_an_update_is_raised(drive: Drive) -> None:
    run = drive(Cart)
    run.start()
    with pytest.raises(KeyError, match="a bug"):
        run.feed(update("breaks"))


def test_the_validator_sees_the_state_and_leaves_no_trace(drive: Drive) -> None:
    run = drive(Cart)
    run.start()
    judge(run, update("add", "lamp"))
    run.feed(update("add", "lamp"))
    with pytest.raises(UpdateRejectedError, match=r"validator of update 'add' of .* raised ApplicationError") as caught:
        judge(run, update("add", "lamp", update_id="u2"))
    assert isinstance(caught.value.__cause__, errors.ApplicationError)
    assert caught.value.__cause__.type == "Twice"


@pytest.mark.parametrize("name", ["acts", "draws"])
def test_a_validator_may_not_act(drive: Drive, name: str) -> None:
    run = drive(Cart)
    run.start()
    with pytest.raises(UpdateRejectedError, match=f"the validator of update '{name}' may not act, wait or draw"):
        judge(run, update(name))
    assert not run.machine.spoiled
    assert run.signal("finish") == [events.CompleteRun(b"[]")]


def test_what_does_not_fit_or_is_not_known_is_refused(drive: Drive) -> None:
    run = drive(Cart)
    run.start()
    with pytest.raises(UpdateRejectedError, match="was sent what it does not take"):
        judge(run, update("add", 7))
    with pytest.raises(UnknownUpdateError, match="has no update 'nope'; it has: acts, add, breaks, draws, fetch-it"):
        judge(run, update("nope"))


def test_an_update_knows_itself(drive: Drive) -> None:
    run = drive(Cart)
    run.start()
    run.feed(update("who", update_id="mine"))
    assert completed_of(run, "mine").result == b'"who mine"'


def test_an_update_that_came_with_the_start_is_handled_before_the_first_line(drive: Drive) -> None:
    @workflow.defn
    class AtOnce:
        def __init__(self) -> None:
            self.got: list[int] = []

        @workflow.run
        async def run(self) -> list[int]:
            return self.got

        @workflow.update
        async def add(self, number: int) -> int:
            self.got.append(number)
            return number

    run = drive(AtOnce)
    assert kinds(run.start(update("add", 7))) == ["CompleteUpdate", "CompleteRun"]
    assert run.result == [7]


def test_what_is_let_through_at_the_start_is_known_without_a_line_of_the_run_method(drive: Drive) -> None:
    run = drive(Cart)
    inputs = [run._started, update("add", "lamp"), update("add", "lamp", update_id="u2"), signal("finish")]
    probe = drive(Cart).machine
    assert updates.admitted_at_start(probe, inputs, time_ms=1) == [True, True, False, True]
    run.start(*(one for one, admitted in zip(inputs[1:], [True, False, True], strict=True) if admitted))
    assert run.result == ["lamp"]


def test_code_without_the_handler_of_what_is_recorded_does_not_replay(drive: Drive) -> None:
    @workflow.defn(name="Cart")
    class Bare:
        @workflow.run
        async def run(self) -> None:
            await workflow.wait_condition(lambda: False)

    run = drive(Cart)
    run.start()
    run.feed(update("add", "lamp"))
    with pytest.raises(NondeterminismError, match="UpdateAccepted 'add', which the code does not take any more"):
        run.replay(Bare)


def test_unfinished_updates_are_told_unless_they_are_to_be_abandoned(drive: Drive) -> None:
    @workflow.defn
    class Hurries:
        def __init__(self) -> None:
            self.done = False

        @workflow.run
        async def run(self) -> None:
            await workflow.wait_condition(lambda: self.done)

        @workflow.update
        async def loud(self) -> None:
            await step("loud")

        @workflow.update(unfinished_policy=workflow.HandlerUnfinishedPolicy.ABANDON)
        async def quiet(self) -> None:
            await step("quiet")

        @workflow.signal
        def finish(self) -> None:
            self.done = True

    run = drive(Hurries)
    run.start()
    run.feed(update("loud"), update("quiet", update_id="u2"))
    run.signal("finish")
    assert [(each.kind, each.name) for each in run.machine.unfinished] == [("update", "loud")]


# Dynamic handlers, and those that are set later -----------------------------------------------------------------------


@workflow.defn
class Anything:
    def __init__(self) -> None:
        self.got: list[str] = []

    @workflow.run
    async def run(self) -> list[str]:
        await workflow.wait_condition(lambda: "stop" in self.got)
        return self.got

    @workflow.signal
    def known(self) -> None:
        self.got.append("known")

    @workflow.signal(dynamic=True)
    def any_signal(self, name: str, args: Sequence[Any]) -> None:
        self.got.append(f"{name}{list(args)}" if args else name)

    @workflow.query(dynamic=True)
    def any_query(self, name: str, args: Sequence[Any]) -> str:
        return f"{name}? {len(self.got)} {list(args)}"

    @workflow.update(dynamic=True)
    async def any_update(self, name: str, args: Sequence[Any]) -> str:
        self.got.append(name)
        return await step(f"{name} {list(args)}")

    @any_update.validator
    def _check_any(self, name: str, args: Sequence[Any]) -> None:
        if name == "never":
            raise ValueError(name)


def test_dynamic_handlers_take_what_no_other_one_does(drive: Drive) -> None:
    run = drive(Anything)
    run.start()
    run.feed(signal("known"), signal("unknown", 1, "a"))
    assert payloads.decode(run.machine.query("state", b"[1]")) == "state? 2 [1]"
    with pytest.raises(UpdateRejectedError, match="ValueError: never"):
        judge(run, update("never"))
    judge(run, update("ever"))
    assert scheduled(run.feed(update("ever", 1))) == [("step", "ever [1]")]
    run.signal("stop")
    assert run.result == ["known", "unknown[1, 'a']", "ever", "stop"]


def test_early_signals_are_handed_over_in_order_when_their_handler_is_set(drive: Drive) -> None:
    @workflow.defn
    async def later() -> list[str]:
        got: list[str] = []
        await workflow.sleep(1)
        workflow.set_signal_handler("note", got.append)
        seen = len(got)
        await workflow.wait_condition(lambda: "end" in got)
        workflow.set_dynamic_signal_handler(lambda name, args: got.append(f"{name} {args[0]}"))
        return [str(seen), *got]

    run = drive(later)
    run.start(signal("note", "a"), signal("other", "b"))
    run.feed(signal("note", "c"))
    assert [(event_id, each.name) for event_id, each in run.machine.early] == [(2, "note"), (3, "other"), (5, "note")]
    assert [event_id for event_id, _, why in run.machine.refusals if why] == [2, 3, 5]
    run.machine.refusals = ()
    run.reload()  # what is kept is of the history
    run.fire(1_000)
    assert [(event_id, each.name) for event_id, each in run.machine.early] == [(3, "other")]
    assert [(event_id, why) for event_id, _, why in run.machine.refusals] == [(2, None), (5, None)]
    run.signal("note", "end")
    assert run.result == ["2", "a", "c", "end", "other b"]


def test_handlers_of_queries_and_updates_are_set_taken_away_and_asked_for(drive: Drive) -> None:
    @workflow.defn
    async def sets() -> str:
        state = "new"
        workflow.set_query_handler("state", lambda: state)
        workflow.set_update_handler("turn", lambda to: to.upper(), validator=_refuse_empty)
        assert workflow.get_query_handler("state") is not None
        assert workflow.get_dynamic_query_handler() is None
        await workflow.sleep(1)
        state = "old"
        workflow.set_update_handler("turn", None)
        await workflow.sleep(1)
        return state

    run = drive(sets)
    run.start()
    assert run.machine.query("state", b"[]") == b'"new"'
    with pytest.raises(UpdateRejectedError, match="empty"):
        judge(run, update("turn", ""))
    run.feed(update("turn", "a"))
    assert completed_of(run).result == b'"A"'
    run.fire(1_000)
    with pytest.raises(UnknownUpdateError, match="it has: none"):
        judge(run, update("turn", "b"))
    run.fire(1_000)
    assert run.result == "old"


def _refuse_empty(text: str) -> None:
    if not text:
        raise ValueError("empty")


def test_a_query_may_set_no_handler(drive: Drive) -> None:
    @workflow.defn
    class Sets:
        @workflow.run
        async def run(self) -> None:
            await workflow.wait_condition(lambda: False)

        @workflow.query
        def sets(self) -> None:
            workflow.set_signal_handler("note", print)

    run = drive(Sets)
    run.start()
    with pytest.raises(errors.QueryFailedError, match="may not act, wait or draw"):
        run.machine.query("sets", b"[]")


def test_definitions_that_cannot_be_are_refused() -> None:
    async def checks(self: object, item: str) -> None: ...

    def takes_more(self: object, item: str, more: int) -> None: ...

    def too_few(self: object, name: str) -> None: ...

    with pytest.raises(UsageError, match=r"the validator .* must be plain"):
        Cart.add.validator(checks)  # type: ignore[arg-type] # what users may do
    with pytest.raises(UsageError, match=r"must take what its update takes: \(self, item\)"):
        Cart.add.validator(takes_more)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="cannot have 'a'"):
        workflow.update(name="a", dynamic=True)(too_few)
    with pytest.raises(UsageError, match=r"must take the name and a sequence of all arguments"):
        workflow.defn(type("Bad", (), {"run": workflow.run(_runs), "any": workflow.signal(dynamic=True)(too_few)}))
    with pytest.raises(UsageError, match="two handlers for the update 'a'"):
        workflow.defn(
            type(
                "Twice",
                (),
                {
                    "run": workflow.run(_runs),
                    "one": workflow.update(name="a")(lambda self: None),
                    "two": workflow.update(name="a")(lambda self: None),
                },
            )
        )


async def _runs(self: object) -> None: ...
