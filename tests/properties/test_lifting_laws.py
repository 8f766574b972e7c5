"""Laws of pauses that are being lifted at a rate, whatever is claimed when."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from pledger.engine.port.pauses import Lifting, Pause, Scope, lifted_at

RATES = st.floats(0.01, 1_000)
#: (how long after the one before in ms, how many are there to be taken, how many are asked for).
CLAIMS = st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 50), st.integers(1, 50)), max_size=50)


def lifted(key: int, scope: Scope, rate: float, backlog: int) -> Pause:
    found = lifted_at(Pause(key, scope, "", "", 0), rate, backlog, 0)
    assert found is not None
    return found


class Waiting(NamedTuple):
    run_key: int
    workflow_type: str
    task_queue: str


def waiting(workflow_type: str) -> Waiting:
    return Waiting(1, workflow_type, "queue")


@given(rate=RATES, backlog=st.integers(1, 500), claims=CLAIMS)
def test_never_more_than_the_rate_and_one_second_of_it(
    rate: float, backlog: int, claims: list[tuple[int, int, int]]
) -> None:
    pause: Pause | None = lifted(1, Scope("n", "namespace", "n"), rate, backlog)
    now_ms = taken_in_all = 0
    for passed_ms, there, limit in claims:
        now_ms += passed_ms
        assert pause is not None
        lifting = Lifting([pause], "queue", now_ms)
        for part in lifting.of_runs(["type"], limit):
            assert 0 < part.room <= limit
            taken = min(there, part.room)
            lifting.pay(part, [waiting("type")] * taken)
            taken_in_all += taken
        pause = lifting.paid.get(1, pause)
        assert taken_in_all <= rate * now_ms / 1000 + max(1.0, rate)
        assert (pause is None) == (taken_in_all >= backlog)
        if pause is None:
            return
        assert pause.released == taken_in_all
        assert pause.tokens >= 0


@given(rate=RATES, backlog=st.integers(1, 200))
def test_whoever_asks_often_enough_gets_all_that_waits(rate: float, backlog: int) -> None:
    pause: Pause | None = lifted(1, Scope("n", "queue", "queue"), rate, backlog)
    now_ms = asked = 0
    while pause is not None:
        asked += 1
        now_ms += int(1000 / rate) + 1
        lifting = Lifting([pause], "queue", now_ms)
        for part in lifting.of_tasks(["type"], 1_000):
            lifting.pay(part, [waiting("type")] * part.room)
        pause = lifting.paid.get(1, pause)
        assert asked <= 2 * backlog + 2


@given(rates=st.tuples(RATES, RATES), limit=st.integers(1, 100), at_ms=st.integers(0, 10_000))
def test_of_two_pauses_both_are_kept_to(rates: tuple[float, float], limit: int, at_ms: int) -> None:
    place = lifted(1, Scope("n", "namespace", "n"), rates[0], 10_000)
    type_ = lifted(2, Scope("n", "type", "a"), rates[1], 10_000)
    lifting = Lifting([place, type_], "queue", at_ms)
    taken = {"a": 0, "b": 0}
    for part in lifting.of_runs(["a", "b"], limit):
        [name] = part.names
        taken[name] += part.room
        lifting.pay(part, [waiting(name)] * part.room)
    assert sum(taken.values()) <= min(limit, max(1.0, rates[0]))
    assert taken["a"] <= max(1.0, rates[1])


@given(rate=RATES)
def test_a_pause_above_stands_in_the_way_of_all(rate: float) -> None:
    above = Pause(1, Scope("n", "namespace", "n"), "", "", 0)
    below = [lifted(2, Scope("n", "queue", "queue"), rate, 5), lifted(3, Scope("n", "type", "a"), rate, 5)]
    lifting = Lifting([above, *below], "queue", 0)
    assert [*lifting.of_runs(["a"], 5), *lifting.of_tasks(["x"], 5)] == []
