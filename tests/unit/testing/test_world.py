"""The outside world remembers what was really done."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pledger import activity, workflow
from pledger.errors import UsageError
from pledger.testing import Faults, Simulation, outside


@activity.defn
async def pay(amount: int) -> list[str]:
    """Twice with the activity's own key, once with another, and once without any."""
    world = outside()
    once, again = await world.apply(f"pay {amount}"), await world.apply(f"pay {amount}")
    return [once, again, await world.apply("tip", key="tip"), await world.apply("coin", key="")]


@activity.defn
def greet(name: str) -> str:
    return outside().apply_now(f"greet {name}", key="")


@workflow.defn
async def shop(amount: int) -> list[str]:
    return [*await pay(amount), await greet("Ada")]


@activity.defn(start_to_close_timeout=timedelta(seconds=5))
async def ring() -> str:
    return await outside().apply("ring", key="")


@workflow.defn
async def chime() -> str:
    return await ring()


def simulated(faults: Faults | None = None, seed: int = 1) -> Simulation:
    sim = Simulation(seed, workflows=[shop], activities=[pay, greet], faults=faults)
    sim.start(shop, 5, id="shop")
    sim.run_until_idle()
    sim.check()
    return sim


def test_effects_are_known_again_by_their_key() -> None:
    sim = simulated()
    [outcome] = sim.programs[0].journal.outcomes
    once, again, tip, coin, greeting = outcome.value
    assert once == again
    assert len({once, tip, coin, greeting}) == 4
    assert sorted(sim.world.effects.values()) == [1, 1, 1, 1]


def test_attempts_are_seen_to_begin_and_to_end() -> None:
    seen = {each.activity_type: each for each in simulated().world.activities.values()}
    [attempt] = seen["greet"].attempts
    assert (attempt.number, attempt.returned, len(seen["greet"].keys)) == (1, True, 1)
    assert seen["pay"].maximum == 10


def test_a_lost_reply_hides_an_effect() -> None:
    without_key = 0
    for seed in range(5):
        sim = simulated(Faults(effect_reply_lost=0.5), seed)
        assert sim.hits["effect_reply_lost"] > 0
        numbers = [[each.number for each in seen.attempts] for seen in sim.world.activities.values()]
        assert any(len(each) > 1 for each in numbers), "a failed attempt is tried again"
        assert all(each == list(range(1, len(each) + 1)) for each in numbers)
        without_key += sim.world.effects["coin"] + sim.world.effects["greet Ada"]
        assert sim.world.effects["tip tip"] == 1
    assert without_key > 10, "without a key it happens again"


def test_a_slow_reply_comes_after_the_effect() -> None:
    """An attempt that times out has done all the same what it was to do."""
    repeated = 0
    for seed in range(10):
        sim = Simulation(seed, workflows=[chime], activities=[ring], faults=Faults(effect_reply_slow=0.5))
        sim.start(chime, id="chime")
        sim.run_until_idle()
        sim.check()
        [seen] = sim.world.activities.values()
        assert sim.world.effects["ring"] == len(seen.attempts)
        repeated += len(seen.attempts) > 1
    assert repeated > 0


def test_there_is_no_outside_elsewhere() -> None:
    with pytest.raises(UsageError, match="Simulation"):
        outside()
