"""F8: clocks. Jumps and drift are drawn in the simulations; here is what the calendar does to a machine's clock.

Runs count milliseconds since 1970 in UTC and know no zone: neither a change of the machine's zone nor the days on which
a zone changes its offset, nor a leap day or second, may move a timer or a replay.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from pledger import activity, workflow
from pledger.testing import Environment, replay

Virtual = Callable[..., Environment]


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Sets the zone of the machine."""

    def use(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield use
    monkeypatch.undo()
    time.tzset()


@activity.defn
async def note(at: datetime) -> str:
    return at.isoformat()


@workflow.defn
async def daily(days: int) -> list[str]:
    """What a day is to a run: 24 hours."""
    noted = [await note(workflow.now())]
    for _ in range(days):
        await workflow.sleep(timedelta(days=1))
        noted.append(await note(workflow.now()))
    return noted


EDGES = {
    "forward": ("Europe/Paris", datetime(2026, 3, 28, 1, 30, tzinfo=UTC)),
    "back": ("America/New_York", datetime(2026, 10, 31, 5, 30, tzinfo=UTC)),
    "half an hour": ("Australia/Lord_Howe", datetime(2024, 4, 5, 14, 45, tzinfo=UTC)),
    "leap day": ("UTC", datetime(2028, 2, 28, 12, tzinfo=UTC)),
    "new year": ("Pacific/Kiritimati", datetime(2026, 12, 31, 9, 59, 59, tzinfo=UTC)),
}


@pytest.mark.parametrize("edge", EDGES)
def test_a_day_is_a_day_across_every_edge_of_a_zone(virtual: Virtual, zone: Callable[[str], None], edge: str) -> None:
    name, began = EDGES[edge]
    zone(name)
    env = virtual(workflows=[daily], activities=[note], now=began)
    noted = [datetime.fromisoformat(each) for each in env.run(daily, 3, id="order-1")]
    assert [each.utcoffset() for each in noted] == [timedelta(0)] * 4
    for day, at in enumerate(noted):
        # Never early; what the steps before it took is a few jumps of virtual time.
        assert timedelta(0) <= at - (began + timedelta(days=day)) < timedelta(seconds=1)


def test_the_zone_of_the_machine_changes_under_an_open_run(virtual: Virtual, zone: Callable[[str], None]) -> None:
    zone("Asia/Tokyo")
    began = datetime(2026, 3, 1, tzinfo=UTC)
    env = virtual(workflows=[daily], activities=[note], now=began)
    handle = env.start(daily, 3, id="order-1")
    env.sleep(timedelta(days=1, hours=12))
    zone("America/Los_Angeles")
    [engine] = env.client.internals.engines
    for run in list(engine.runs.active.values()):
        engine.runs.leaving.release(run)  # it comes back by replay, in the other zone
    noted = [datetime.fromisoformat(each) for each in handle.result()]
    assert noted[-1] - began < timedelta(days=3, seconds=1)
    history = handle.history()
    for name in ("UTC", "Asia/Kathmandu"):
        zone(name)
        assert replay(history, daily) == len(history.events)


@pytest.mark.parametrize(
    "step_s", [-1, 1, -3_600, 3_600], ids=["leap second", "dropped second", "hour back", "hour on"]
)
def test_a_step_of_the_ledgers_clock_takes_no_run_back_and_fires_no_timer_early(virtual: Virtual, step_s: int) -> None:
    """A leap second shows as a step back of one: the second of that name is there twice."""
    began = datetime(2016, 12, 31, 23, 59, 30, tzinfo=UTC)
    env = virtual(workflows=[daily], activities=[note], now=began)
    handle = env.start(daily, 2, id="order-1")
    env.sleep(timedelta(seconds=29))
    env._inner._began_ms += step_s * 1000
    noted = [datetime.fromisoformat(each) for each in handle.result()]
    assert noted == sorted(noted)
    for earlier, later in itertools.pairwise(noted):
        assert later - earlier >= timedelta(days=1)
    times = [each.time for each in handle.history().events]
    assert times == sorted(times)
    # By the ledger's clock, whatever it shows.
    assert env.now() >= began + timedelta(days=2)


def test_the_zones_of_these_tests_are_there() -> None:
    """Without them every edge would be one of UTC, and nothing would be proven."""
    before = os.environ.get("TZ")
    try:
        for name, _ in EDGES.values():
            os.environ["TZ"] = name
            time.tzset()
            offset = time.localtime(1_790_000_000).tm_gmtoff
            assert (offset == 0) == (name == "UTC")
    finally:
        os.environ.pop("TZ", None)
        if before is not None:
            os.environ["TZ"] = before
        time.tzset()
