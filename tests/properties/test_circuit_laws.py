"""Laws of dependencies, whatever workers report and ask for, and whenever."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from pledger.engine.port import circuit
from pledger.engine.port.choosing import choose
from pledger.engine.port.circuit import LIMIT_MAX, Dependency, Tally
from pledger.engine.port.lane_text import CALLS
from pledger.engine.port.lanes import Bounds, Head, Situation, Slot
from pledger.history.budget import BudgetRule

RULES = st.builds(
    BudgetRule,
    ratio=st.just(0.0) | st.floats(0, 2),
    minimum_per_second=st.floats(0.01, 1) | st.floats(0.01, 100),  # so little that retries are held up
    window_ms=st.integers(1_000, 60_000),
    failure_ratio=st.none() | st.floats(0.01, 1),
    minimum_calls=st.integers(1, 20),
    pause_ms=st.integers(1, 10_000),
    pause_max_ms=st.just(20_000),
)


class Step(NamedTuple):
    """passed_ms: since the step before. behind: reports are of attempts that began so many openings ago. firsts,
    retries: attempts that would like to start. running: those that hold a slot of the dependency. operator: what he
    does, if he is there."""

    passed_ms: int
    calls: int
    succeeded: int
    failed: int
    behind: int
    firsts: int
    retries: int
    running: int
    operator: str | None


STEPS = st.lists(
    st.builds(
        Step,
        passed_ms=st.integers(0, 8_000),
        calls=st.integers(0, 20),
        succeeded=st.integers(0, 20),
        failed=st.integers(0, 20),
        behind=st.integers(0, 2),
        firsts=st.integers(0, 5),
        retries=st.integers(0, 9),
        running=st.integers(0, 3),
        operator=st.sampled_from([None, None, None, None, "pause", "resume", "close"]),
    ),
    max_size=30,
)


def acted(found: Dependency, step: Step, now_ms: int) -> Dependency:
    match step.operator:
        case "pause":
            return circuit.paused(found, "", "ada", now_ms)
        case "resume" | "close":
            return circuit.resumed(found, "", "ada", now_ms, at_once=step.operator == "close")
        case _:
            return found


def reported(found: Dependency, step: Step, now_ms: int) -> Dependency:
    opened = max(0, found.opened - step.behind)
    return circuit.noted(found, [Tally(opened, step.calls, step.succeeded, step.failed)], now_ms)


def started(found: Dependency, step: Step, now_ms: int) -> tuple[Dependency, int, int]:
    """By a claim: what is then in the row, and how many it has let through, first attempts and retries."""
    attempts = [2] * step.retries + [1] * step.firsts
    heads = [Head(1, n, attempt, "charge", None, 0, 1.0, is_over=False) for n, attempt in enumerate(attempts)]
    slots = {(CALLS, "bank", n): Slot(CALLS, "bank", n, 1, 2, n, 1, live=True) for n in range(1, step.running + 1)}
    there = Situation(now_ms, now_ms, heads, slots=slots, dependencies={"bank": found})
    choice = choose(there, Bounds({}, {}, (), {"charge": "bank"}, {"bank": found.rule}), room=100)
    assert len(choice.grants) + len(choice.aside) == len(heads)
    assert choice.waits or not choice.aside
    retries = sum(grant.head.attempt > 1 for grant in choice.grants)
    return choice.dependencies.get("bank", found), len(choice.grants) - retries, retries


@given(rule=RULES, steps=STEPS)
def test_retries_stay_within_the_budget(rule: BudgetRule, steps: list[Step]) -> None:
    found = circuit.new(rule, 0)
    now_ms = calls = retries = 0
    for step in steps:
        now_ms += step.passed_ms
        found = acted(reported(found, step, now_ms), step, now_ms)
        calls += step.calls
        found, _, more = started(found, step, now_ms)
        retries += more
        burst = max(1.0, rule.minimum_per_second)
        assert retries <= rule.ratio * calls + rule.minimum_per_second * now_ms / 1000 + burst + 1e-6
        assert found.tokens > -1e-6


@given(rule=RULES, steps=STEPS)
def test_nothing_starts_while_it_is_open_or_paused(rule: BudgetRule, steps: list[Step]) -> None:
    found, now_ms = circuit.new(rule, 0), 0
    for step in steps:
        now_ms += step.passed_ms
        found = acted(reported(found, step, now_ms), step, now_ms)
        before = circuit.seen(found, now_ms)
        found, firsts, retries = started(found, step, now_ms)
        match before.phase:
            case "open" | "paused":
                assert (firsts, retries) == (0, 0)
            case "half_open":
                assert 1 <= before.limit <= LIMIT_MAX
                room = max(0, before.limit - step.running)
                assert retries <= room
                assert firsts == min(step.firsts, room - retries)
            case "closed":
                assert firsts == step.firsts


@given(rule=RULES, steps=STEPS, share=st.floats(0, 1))
def test_looking_changes_nothing(rule: BudgetRule, steps: list[Step], share: float) -> None:
    """A row is written when there is something to write; whoever looks in between sees the same."""
    often = seldom = circuit.new(rule, 0)
    now_ms = 0
    for step in steps:
        often = circuit.seen(often, now_ms + int(share * step.passed_ms))
        now_ms += step.passed_ms
        often, seldom = (acted(reported(each, step, now_ms), step, now_ms) for each in (often, seldom))
        assert (often.phase, often.opened, often.limit) == (seldom.phase, seldom.opened, seldom.limit)
        assert often.counts == seldom.counts
        assert abs(often.tokens - seldom.tokens) < 1e-6 * max(1.0, often.tokens)


@given(rule=RULES, steps=STEPS)
def test_it_closes_once_all_goes_well(rule: BudgetRule, steps: list[Step]) -> None:
    found, now_ms = circuit.new(rule, 0), 0
    for step in steps:
        now_ms += step.passed_ms
        found = acted(reported(found, step, now_ms), step, now_ms)
    if found.phase == "paused":
        found = circuit.resumed(found, "", "ada", now_ms, at_once=False)
    for _ in range(40):
        if found.phase == "closed":
            break
        now_ms = max(now_ms, found.until_ms)
        found, firsts, _ = started(found, Step(0, 0, 0, 0, 0, 9, 0, 0, None), now_ms)
        found = circuit.noted(found, [Tally(found.opened, 0, firsts, 0)], now_ms)
    assert found.phase == "closed"


@given(rule=RULES, steps=STEPS)
def test_a_row_is_small_and_comes_back(rule: BudgetRule, steps: list[Step]) -> None:
    found, now_ms = circuit.new(rule, 0), 0
    for step in steps:
        now_ms += step.passed_ms
        found = acted(reported(found, step, now_ms), step, now_ms)
    data = circuit.encode(found)
    assert circuit.decode(data) == found
    assert len(data) < 20_000
