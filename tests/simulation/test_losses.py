"""Runs that slept when their ledger lost its tail: a message may have woken them in the part that is gone, and leads
once more to what it has led to there when it is given again. What may run once must not run twice by that."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping

import pytest

from pledger import workflow
from pledger.engine.active_run import ActiveRun
from pledger.engine.loading import Loader
from pledger.errors import ActivityError
from pledger.testing import Caller, Faults, Simulation, SimulationFailedError
from tests.reference.activities import ACTIVITIES, once

SEEDS = range(8)


@workflow.defn
class Decided:
    """Sleeps until somebody decides, or for so long."""

    def __init__(self) -> None:
        self.answer = ""

    @workflow.run
    async def run(self, patience_s: float) -> str:
        with contextlib.suppress(TimeoutError):
            await workflow.wait_condition(lambda: self.answer, timeout=patience_s)
        return await done_or_unknown("carry out")

    @workflow.signal
    def decide(self, answer: str) -> None:
        self.answer = answer


@workflow.defn
async def undone(length_s: float) -> str:
    """Sleeps, and cleans up when it is cancelled; takes its time over it."""
    try:
        await asyncio.sleep(length_s)
    except asyncio.CancelledError:
        await asyncio.shield(asyncio.sleep(0.5))
        return await asyncio.shield(done_or_unknown("undo"))
    return "slept well"


async def done_or_unknown(what: str) -> str:
    try:
        return await once(what)
    except ActivityError as error:
        return type(error.__cause__).__name__


async def decide(caller: Caller) -> None:
    await asyncio.sleep(caller.dice.random() * 8)
    await caller.signal(Decided.decide, "yes", message_id="decision")


async def cancel(caller: Caller) -> None:
    await asyncio.sleep(caller.dice.random() * 8)
    await caller.cancel("changed my mind")


def lose(seed: int, **rates: float) -> Simulation:
    faults = Faults(tail_lost=0.3, **rates)
    sim = Simulation(seed, workflows=[Decided, undone], activities=ACTIVITIES, faults=faults, store="postgres")
    for number in range(3):
        sim.start(Decided, 60.0, id=f"decided-{number}", then=decide)
        sim.start(undone, 60.0, id=f"undone-{number}", then=cancel)
    sim.run_until_idle()
    sim.check()
    return sim


@pytest.mark.parametrize("rates", [{}, {"kill": 0.3, "restart": 0.3}], ids=["alone", "with deaths"])
def test_a_message_that_is_given_again_repeats_nothing_that_may_run_once(rates: dict[str, float]) -> None:
    told: set[str] = set()
    for seed in SEEDS:
        sim = lose(seed, **rates)
        told |= {str(program.journal.outcomes[-1].value).partition("-")[0] for program in sim.programs}
    # Done where nothing was lost, unknown where it may be; nothing at all of a run that was cancelled before it began.
    assert {"carry out", "undo", "WorkerLostError"} <= told
    assert told <= {"carry out", "undo", "WorkerLostError", "slept well", "None"}


def who_slept_is_not_in_doubt(patch: pytest.MonkeyPatch) -> None:
    def doubt(self: Loader, run: ActiveRun, losses: Mapping[int, bool]) -> None:
        run.in_doubt = losses.get(run.run_key, False)

    patch.setattr(Loader, "_doubt", doubt)


def a_cancel_is_no_message(patch: pytest.MonkeyPatch) -> None:
    rule = Loader._doubt

    def doubt(self: Loader, run: ActiveRun, losses: Mapping[int, bool]) -> None:
        rule(self, run, losses)
        run.slept = False

    patch.setattr(Loader, "_doubt", doubt)


@pytest.mark.parametrize("take_out", [who_slept_is_not_in_doubt, a_cancel_is_no_message])
def test_without_doubt_it_runs_twice(
    take_out: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The revert test of the one above."""
    take_out(monkeypatch)
    found: list[str] = []
    for seed in range(100):
        try:
            lose(seed)
        except SimulationFailedError as error:
            found = error.violations
            break
    assert any(each.startswith("what may run once runs once") for each in found), found
