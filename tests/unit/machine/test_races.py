"""First-of races: who wins, and what becomes of the others. Every run is replayed at the end of its test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from pledger import activity, workflow
from pledger.errors import ApplicationError, UsageError, WorkerLostError
from pledger.history import events
from tests.unit.machine.harness import DrivenRun, completed, failed, kinds

Drive = Callable[..., DrivenRun]


@activity.defn
async def step(name: str) -> Any:
    return name


@activity.defn(cancellation_type="wait")
async def patient(name: str) -> Any:
    return name


async def stubborn() -> str:
    """Will not be stopped."""
    try:
        await step("stubborn")
    except asyncio.CancelledError:
        return await step("done all the same")
    return "never"


async def clean() -> None:
    await asyncio.Event().wait()


async def bad_loser() -> None:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        raise ApplicationError("not like this") from None


@workflow.defn
async def of_every_kind() -> dict[str, Any]:
    race: workflow.Race[Any] = await workflow.first_of(
        workflow.sleep(10),
        clean=clean(),
        careless=step("careless"),
        inside=one_step(),
        stubborn=stubborn(),
        patient=patient("patient"),
        bad=bad_loser(),
    )
    return {each.name: [each.outcome, each.result] for each in race}


async def one_step() -> str:
    return await step("inside")


def test_of_each_is_said_what_became_of_it(drive: Drive) -> None:
    run = drive(of_every_kind)
    run.start()
    commands = run.fire(10_000)
    assert kinds(commands).count("CancelActivity") == 4
    run.complete(run.event_id_of("step"), "done all the same")
    run.complete(run.event_id_of("patient"), "was nearly done")
    assert run.result == {
        "0": ["won", None],
        "clean": ["cancelled", None],
        "careless": ["unknown", None],
        "inside": ["unknown", None],
        "stubborn": ["completed_late", "done all the same"],
        "patient": ["completed_late", "was nearly done"],
        "bad": ["failed", None],
    }


@workflow.defn
async def two(until: str, kind: str) -> list[Any]:
    options: Any = {"until": until}
    first, second = (step("a"), step("b")) if kind == "step" else (patient("a"), patient("b"))
    race = await workflow.first_of(a=first, b=second, **options)
    return [race.winner.name, race.result, race["a"].outcome, race["b"].outcome]


def test_of_those_that_end_in_one_transition_the_first_one_given_has_won(drive: Drive) -> None:
    run = drive(two, "completed", "wait")
    run.start()
    run.feed(completed(2, "of a"), completed(3, "of b"))
    assert run.result == ["a", "of a", "won", "completed_late"]
    # Inputs of one transition are handed over one after another: the code has decided by the time of the second.
    run = drive(two, "completed", "wait")
    run.start()
    run.feed(completed(3, "of b"), completed(2, "of a"))
    assert run.result == ["b", "of b", "completed_late", "won"]


def test_one_that_fails_decides_and_raises(drive: Drive) -> None:
    run = drive(two, "completed", "step")
    run.start()
    commands = run.fail(3, ValueError("no"))
    assert isinstance(commands[-1], events.FailRun)
    assert commands[-1].failure.kind == "activity"


def test_one_that_fails_is_out_where_a_success_is_wanted(drive: Drive) -> None:
    run = drive(two, "succeeded", "step")
    run.start()
    assert run.fail(3, ValueError("no")) == []
    run.complete(2, "late but right")
    assert run.result == ["a", "late but right", "won", "failed"]


def test_when_all_fail_all_errors_are_raised(drive: Drive) -> None:
    run = drive(two, "succeeded", "step")
    run.start()
    run.fail(3, ValueError("no"))
    commands = run.fail(2, ValueError("neither"))
    assert isinstance(commands[-1], events.FailRun)
    assert commands[-1].failure.type == "ExceptionGroup"


def test_a_loser_that_is_waited_for(drive: Drive) -> None:
    ends = {
        "unknown": failed(3, WorkerLostError("gone")),
        "failed": failed(3, ApplicationError("no")),
        "completed_late": completed(3, "after all"),
    }
    for expected, outcome in ends.items():
        run = drive(two, "completed", "wait")
        run.start()
        assert kinds(run.complete(2, "won")) == ["CancelActivity"]
        run.feed(outcome)
        assert run.result == ["a", "won", "won", expected]


def test_a_loser_that_was_never_scheduled_is_cancelled(drive: Drive) -> None:
    @workflow.defn
    async def at_once() -> list[str]:
        race = await workflow.first_of(asyncio.sleep(0), step("never"))
        return [each.outcome for each in race]

    run = drive(at_once)
    assert kinds(run.start()) == ["CompleteRun"]
    assert run.result == ["won", "cancelled"]


def test_a_cancellation_from_outside_cancels_all(drive: Drive) -> None:
    run = drive(two, "completed", "wait")
    run.start()
    assert kinds(run.cancel("enough")) == ["CancelActivity", "CancelActivity"]
    run.feed(completed(2), completed(3))
    assert isinstance(run.events[-1], events.CancelRun)


def test_a_cancellation_while_losers_end_is_raised_when_they_have(drive: Drive) -> None:
    run = drive(two, "completed", "wait")
    run.start()
    run.complete(2, "won")
    assert run.cancel("enough") == []
    run.feed(completed(3))
    assert isinstance(run.events[-1], events.CancelRun)


def test_a_race_needs_somebody_and_names_of_their_own(drive: Drive) -> None:
    told = []

    @workflow.defn
    async def wrong() -> None:
        for call in (workflow.first_of, lambda: workflow.first_of(clean(), until="later")):  # type: ignore[arg-type]
            try:
                await call()
            except UsageError as error:
                told.append(str(error))

    drive(wrong).start()
    assert len(told) == 2
