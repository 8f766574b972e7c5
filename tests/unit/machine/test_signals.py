"""Signals: when their handlers run, and what becomes of those that nobody handles."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from pledger import activity, workflow
from tests.unit.machine.harness import DrivenRun, completed, kinds, scheduled, signal

Drive = Callable[..., DrivenRun]


@activity.defn
async def step(name: str) -> str:
    return name


@workflow.defn
class Note:
    """Returns at once, without any wait."""

    @workflow.init
    def __init__(self, prefix: str) -> None:
        self.got: str | None = None
        self.prefix = prefix

    @workflow.run
    async def run(self, prefix: str) -> str | None:
        return self.got

    @workflow.signal
    def note(self, text: str) -> None:
        self.got = self.prefix + text

    @workflow.signal
    async def note_later(self, text: str) -> None:
        self.got = self.prefix + text


@pytest.mark.parametrize("handler", ["note", "note_later"])
def test_SIG_03_a_signal_that_came_with_the_start_is_visible_to_the_first_line(drive: Drive, handler: str) -> None:
    run = drive(Note, "a-")
    # Start and signal arrived before anybody took the run; the handler reads what is set from the start's arguments.
    assert kinds(run.start(signal(handler, "b"))) == ["CompleteRun"]
    assert run.result == "a-b"


def test_SIG_03_without_a_signal_there_is_none(drive: Drive) -> None:
    run = drive(Note, "a-")
    run.start()
    assert run.result is None


def test_SIG_03_the_last_of_several_early_signals_is_the_last(drive: Drive) -> None:
    run = drive(Note, "a-")
    run.start(signal("note", "b"), signal("note_later", "c"), signal("note", "d"))
    assert run.result == "a-d"


def test_without_init_the_constructor_takes_no_arguments(drive: Drive) -> None:
    @workflow.defn
    class Plain:
        def __init__(self) -> None:
            self.got: list[str] = []

        @workflow.run
        async def run(self, order: str) -> list[str]:
            return [order, *self.got]

        @workflow.signal
        def note(self, text: str) -> None:
            self.got.append(text)

    run = drive(Plain, "A1")
    run.start(signal("note", "b"))
    assert run.result == ["A1", "b"]


@workflow.defn
class Collects:
    def __init__(self) -> None:
        self.got: list[str] = []

    @workflow.run
    async def run(self, count: int) -> list[str]:
        await workflow.wait_condition(lambda: len(self.got) >= count)
        return self.got

    @workflow.signal
    def note(self, text: str) -> None:
        self.got.append(text)

    @workflow.signal(name="slow-note")
    async def slow(self, text: str) -> None:
        self.got.append(await step(text))


def test_signals_are_handled_in_the_order_of_the_record(drive: Drive) -> None:
    run = drive(Collects, 4)
    run.start(signal("note", "a"))
    run.feed(signal("note", "b"), signal("note", "c"))
    run.signal("note", "d")
    assert run.result == ["a", "b", "c", "d"]


def test_an_async_handler_runs_beside_the_run_method(drive: Drive) -> None:
    run = drive(Collects, 2)
    run.start()
    assert scheduled(run.signal("slow-note", "a")) == [("step", "a")]
    run.signal("note", "b")
    run.complete(run.event_id_of("step"), "A")
    assert run.result == ["b", "A"]


def test_each_signal_starts_a_handler_of_its_own(drive: Drive) -> None:
    run = drive(Collects, 2)
    run.start()
    run.feed(signal("slow-note", "a"), signal("slow-note", "a"))
    first, second = (n for n, event in enumerate(run.events, 1) if scheduled([event]))
    run.complete(second, "second")
    run.reload()
    run.complete(first, "first")
    assert run.result == ["second", "first"]


def test_unknown_signals_are_kept_and_harm_nobody(drive: Drive) -> None:
    run = drive(Collects, 1)
    run.start(signal("nope", "early"))
    assert run.signal("neither", 7) == []
    assert [each.name for each in run.machine.unhandled_signals] == ["nope", "neither"]
    run.reload()
    assert [each.name for each in run.machine.unhandled_signals] == ["nope", "neither"]
    run.signal("note", "a")
    assert run.result == ["a"]


def test_a_signal_whose_arguments_do_not_fit_is_kept_and_harms_nobody(drive: Drive) -> None:
    run = drive(Collects, 1)
    run.start()
    assert run.signal("note", {"not": "a text"}) == []
    assert [each.name for each in run.machine.unhandled_signals] == ["note"]
    ((event_id, refused, why),) = run.machine.refusals
    assert event_id == 2
    assert refused.name == "note"
    assert "annotated as str" in why or "expected str" in why
    run.reload()
    assert run.machine.refusals == ()  # what was told once is not told again on replay
    run.signal("note", "a")
    assert run.result == ["a"]


def test_a_function_takes_no_signals_and_keeps_them(drive: Drive) -> None:
    @workflow.defn
    async def plain() -> str:
        await asyncio.sleep(1)
        return "done"

    run = drive(plain)
    run.start()
    run.signal("note", "a")
    assert [each.name for each in run.machine.unhandled_signals] == ["note"]
    run.fire(1_000)
    assert run.result == "done"


def test_signals_after_the_end_are_not_taken_in(drive: Drive) -> None:
    run = drive(Collects, 1)
    run.start()
    run.feed(signal("note", "a"), signal("note", "too late"))
    assert run.result == ["a"]
    assert kinds(run.events) == ["RunStarted", "SignalReceived", "CompleteRun"]


@workflow.defn
class Jobs:
    """One job at a time: a message that asks for the second while the first one runs does nothing."""

    def __init__(self) -> None:
        self.running = 0

    @workflow.run
    async def run(self) -> str:
        await asyncio.sleep(3_600)
        return "an hour is over"

    async def job(self, number: int) -> None:
        self.running += 1
        await step(f"job-{number}")
        self.running -= 1

    @workflow.signal
    async def start(self) -> None:
        await self.job(1)

    @workflow.signal
    async def resume(self) -> None:
        if self.running == 0:
            await self.job(2)


def test_RPL_03_a_message_is_not_replayed_ahead_of_the_completion_before_it(drive: Drive) -> None:
    """The case has an update where this has a signal; the order of the record is the only order for both."""
    run = drive(Jobs)
    run.start()
    assert scheduled(run.signal("start")) == [("step", "job-1")]
    # Both in one transition, completion first: the job is over when the message is handled.
    assert scheduled(run.feed(completed(4, "done"), signal("resume"))) == [("step", "job-2")]
    for _ in range(10):
        again = run.replay()
        assert again.last_event == run.machine.last_event
        again.destroy()
    run.reload()
    run.complete(run.event_id_of("step"), "done")
    run.fire(3_600_000)
    assert run.result == "an hour is over"


def test_RPL_03_the_other_order_is_another_run(drive: Drive) -> None:
    run = drive(Jobs)
    run.start()
    run.signal("start")
    assert run.feed(signal("resume"), completed(4, "done")) == []
    run.reload()
    run.fire(3_600_000)
    assert run.result == "an hour is over"


# Async handlers and the end of the run --------------------------------------------------------------------------------


@workflow.defn
class Hurries:
    """Returns at the signal `finish`, with its handlers if it is told to wait for them."""

    @workflow.init
    def __init__(self, patient: bool) -> None:
        self.got: list[str] = []
        self.over = False

    @workflow.run
    async def run(self, patient: bool) -> list[str]:
        await workflow.wait_condition(lambda: self.over)
        if patient:
            await workflow.wait_condition(workflow.all_handlers_finished)
        return self.got

    @workflow.signal
    async def note(self, text: str) -> None:
        self.got.append(await step(text))

    @workflow.signal
    def finish(self) -> None:
        self.over = True

    @workflow.query
    def is_idle(self) -> bool:
        return workflow.all_handlers_finished()


def test_a_run_that_waits_for_its_handlers_ends_with_what_they_did(drive: Drive) -> None:
    run = drive(Hurries, True)
    run.start()
    assert run.machine.query("is_idle", b"[]") == b"true"
    run.signal("note", "a")
    run.signal("note", "b")
    first, second = (n for n, event in enumerate(run.events, 1) if scheduled([event]))
    assert run.machine.query("is_idle", b"[]") == b"false"
    run.signal("finish")
    run.complete(first, "a")
    assert run.machine.closed is None
    run.complete(second, "b")
    assert run.result == ["a", "b"]
    assert run.machine.unfinished == ()


def test_handlers_at_work_at_the_end_are_named_once(drive: Drive) -> None:
    run = drive(Hurries, False)
    run.start()
    run.signal("note", "a")
    run.signal("finish")
    assert run.result == []
    assert [(each.kind, each.name) for each in run.machine.unfinished] == [("signal", "note")]
    run.reload()
    assert run.machine.unfinished == ()  # what was told once is not told again on replay


def test_a_handler_that_ends_in_the_last_step_of_the_run_is_finished(drive: Drive) -> None:
    run = drive(Hurries, False)
    run.start()
    run.signal("note", "a")
    run.feed(completed(run.event_id_of("step"), "a"), signal("finish"))
    assert run.result == ["a"]
    assert run.machine.unfinished == ()


@dataclass
class And:
    child: And | Or | None = None


@dataclass
class Or:
    child: And | Or | None = None


@workflow.defn
class Rules:
    def __init__(self) -> None:
        self.rules: list[And] = []

    @workflow.run
    async def run(self) -> int:
        await workflow.wait_condition(lambda: bool(self.rules))
        return len(self.rules)

    @workflow.signal
    def rule(self, rule: And) -> None:
        self.rules.append(rule)


def test_a_small_signal_that_fits_everywhere_holds_nobody_up(drive: Drive) -> None:
    tree: object = None
    for _ in range(60):
        tree = {"child": tree}
    run = drive(Rules)
    run.start()
    run.signal("rule", tree)
    ((event_id, refused, why),) = run.machine.refusals
    assert event_id == 2
    assert refused.name == "rule"
    assert "child" in why
    run.signal("rule", {})
    assert run.result == 1
