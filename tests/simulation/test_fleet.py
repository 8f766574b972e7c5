"""How often an idle worker asks, and how soon the work of a dead one goes on: in virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from pledger import RetryPolicy, activity, workflow
from pledger.engine.intake import WAITING_LOOK_MS
from pledger.engine.limits import Limits
from pledger.errors import ActivityError
from pledger.testing import Faults, Simulation
from pledger.testing.handles import SimulatedStore
from pledger.testing.process import Process
from pledger.testing.seats import Seats
from pledger.testing.weather import Weather

HOUR_S = 3_600.0


@workflow.defn
async def sleeper(seconds: float) -> None:
    await asyncio.sleep(seconds)


def test_an_idle_worker_on_a_server_asks_less_than_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every verb that it uses counts; each is one statement or more, and those of an idle worker are one."""
    sim = Simulation(1, workflows=[sleeper], faults=Faults(), workers=1, clients=0, store="postgres", limits=Limits())
    sim._seats.fill()
    sim._scheduler.run(lambda: False, 60.0)  # it has settled
    asked = count_verbs(monkeypatch)
    sim._scheduler.run(lambda: False, 60.0 + HOUR_S)
    assert asked["look"] >= HOUR_S / 5, asked
    assert asked["renew_session"] >= HOUR_S / 2
    assert asked.total() < HOUR_S, asked
    sim._seats.dispose()


@activity.defn(retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_attempts=2))
async def linger(fails: bool) -> None:
    if fails and activity.info().attempt == 1:
        raise ConnectionError
    await asyncio.sleep(60)


@activity.defn
def in_a_thread() -> None: ...


@workflow.defn
async def lingering(width: int, fails: bool) -> None:
    await asyncio.gather(*(linger(fails) for _ in range(width)))


def count_verbs(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    asked: Counter[str] = Counter()
    before = Weather.before

    def counting(self: Weather, verb: str, detail: Any) -> Any:
        asked[verb] += 1
        return before(self, verb, detail)

    monkeypatch.setattr(Weather, "before", counting)
    return asked


def run_lingering(width: int, slots: int, *, fails: bool) -> Simulation:
    limits = Limits(concurrent_activities_max=slots)
    activities = [linger, in_a_thread]
    sim = Simulation(
        1, workflows=[lingering], activities=activities, faults=Faults(), workers=1, clients=0, limits=limits
    )
    sim.start(lingering, width, fails, id="order-1")
    sim._seats.fill()
    return sim


def test_a_worker_without_a_free_slot_does_not_look_for_activities(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slot that becomes free has it look; until then what is due waits for another worker, or until its time is
    over, which is looked at once a second."""
    sim = run_lingering(2, 1, fails=False)
    sim._scheduler.run(lambda: False, 20.0)
    asked = count_verbs(monkeypatch)
    sim._scheduler.run(lambda: False, 40.0)
    assert 0 < asked["look"] <= 20 * 1_000 / WAITING_LOOK_MS + 20 / SimulatedStore.look_every_s, asked
    assert asked["claim_tasks"] == asked["claim_runs"] == 0
    assert sim._scheduler.run(lambda: not sim._ledger.has_open_runs, 150.0)
    assert asked["claim_tasks"] > 0
    sim._seats.dispose()


@workflow.defn
async def impatient() -> str:
    """Two that take the only slot one after the other; the second one does not wait so long."""
    first = asyncio.ensure_future(linger(False))
    second = workflow.execute_activity(linger, False, schedule_to_start_timeout=timedelta(seconds=1))
    try:
        return str(await second)
    except ActivityError as error:
        first.cancel()
        return str(error.__cause__)


@pytest.mark.parametrize("seed", range(3))
def test_a_worker_without_a_free_slot_sees_who_has_waited_too_long(seed: int) -> None:
    limits = Limits(concurrent_activities_max=1, lease_ms=10_000)
    sim = Simulation(
        seed, workflows=[impatient], activities=[linger], faults=Faults(), workers=1, clients=0, limits=limits
    )
    sim.start(impatient, id="order-1")
    sim._seats.fill()
    _wait(sim, lambda: any(sim.state.tasks.values()))
    began_s = sim.now_s
    _wait(sim, lambda: not sim._ledger.has_open_runs)
    assert sim.now_s - began_s < 2.5
    sim._seats.dispose()


def test_activities_that_take_a_thread_or_none_are_asked_for_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = run_lingering(1, 10, fails=True)
    asked = count_verbs(monkeypatch)
    sim._scheduler.run(lambda: False, 40.0)  # its second attempt runs
    assert (asked["claim_tasks"], asked["claim_runs"]) == (1, 0), asked
    sim._seats.dispose()


@pytest.mark.parametrize("store", ["memory", "postgres"])
@pytest.mark.parametrize("lease_ms", [2_000, 5_000])
def test_what_a_dead_worker_held_goes_on_within_two_lease_periods(
    store: str, lease_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One other worker is there, whom nothing wakes: nobody else writes, and nobody takes the seat of the dead one."""
    monkeypatch.setattr(Seats, "_is_needed", lambda self: False)
    for part in range(8):
        took_s = _take_over(part, store, lease_ms, died_after_s=part / 8 * lease_ms / 1000)
        assert took_s <= 2 * lease_ms / 1000, part


def _take_over(seed: int, store: str, lease_ms: int, died_after_s: float) -> float:
    """How long nobody had the run of a worker that died so long after it had begun."""
    limits = Limits(lease_ms=lease_ms)
    sim = Simulation(seed, workflows=[sleeper], faults=Faults(), workers=2, store=store, limits=limits)
    sim.start(sleeper, HOUR_S, id="order-1")
    sim._seats.fill()
    _wait(sim, lambda: _owner(sim) is not None)
    sim._scheduler.run(lambda: False, sim.now_s + died_after_s)
    dead, died_s = _owner(sim), sim.now_s
    assert dead is not None
    dead.kill("kill")
    _wait(sim, lambda: _owner(sim) not in {None, dead})
    took_s = sim.now_s - died_s
    sim._seats.dispose()
    sim._ledger.dispose()
    return took_s


def _wait(sim: Simulation, until: Callable[[], bool]) -> None:
    assert sim._scheduler.run(until, sim.now_s + 120.0), sim._unfinished()


def _owner(sim: Simulation) -> Process | None:
    """Who has the run, or had it last; None before anybody has."""
    owners = {run.owner for run in sim.state.runs.values()}
    return next((each for each in sim._seats._lives if owners & each.sessions.keys()), None)
