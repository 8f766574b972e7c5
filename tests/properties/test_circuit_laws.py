"""Laws of dependencies, whatever workers report and ask for, and whenever."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from pledger.engine.port import circuit
from pledger.engine.port.circuit import LIMIT_MAX, Dependency, Tally
from pledger.history.budget import BudgetRule

RULES = st.builds(
    BudgetRule,
    ratio=st.floats(0, 2),
    minimum_per_second=st.floats(0.01, 100),
    window_ms=st.integers(1_000, 60_000),
    failure_ratio=st.none() | st.floats(0.01, 1),
    minimum_calls=st.integers(1, 20),
    pause_ms=st.integers(1, 10_000),
    pause_max_ms=st.just(20_000),
)


class Step(NamedTuple):
    """passed_ms: since the step before. behind: reports are of attempts that began so many openings ago. asked: how
    many attempts, retries among them, would like to start. operator: what he does, if he is there."""

    passed_ms: int
    calls: int
    succeeded: int
    failed: int
    behind: int
    firsts: int
    retries: int
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
        retries=st.integers(0, 5),
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


def started(found: Dependency, step: Step) -> tuple[Dependency, int, int]:
    """As a claim does: with what it has let through, first attempts and retries."""
    firsts = retries = 0
    for is_retry in [True] * step.retries + [False] * step.firsts:
        most = found.concurrency
        if most is not None and firsts + retries >= most:
            continue
        if is_retry and circuit.retry_due_ms(found) is not None:
            continue
        firsts, retries = firsts + (not is_retry), retries + is_retry
        found = circuit.granted(found, is_retry=is_retry, in_use=firsts + retries)
    return found, firsts, retries


@given(rule=RULES, steps=STEPS)
def test_retries_stay_within_the_budget(rule: BudgetRule, steps: list[Step]) -> None:
    found = circuit.new(rule, 0)
    now_ms = calls = retries = 0
    for step in steps:
        now_ms += step.passed_ms
        found = acted(reported(found, step, now_ms), step, now_ms)
        calls += step.calls
        found, _, more = started(circuit.seen(found, now_ms), step)
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
        found, firsts, retries = started(before, step)
        match before.phase:
            case "open" | "paused":
                assert (firsts, retries) == (0, 0)
            case "half_open":
                assert 1 <= before.limit <= LIMIT_MAX
                assert firsts + retries <= before.limit
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
        found, firsts, _ = started(circuit.seen(found, now_ms), Step(0, 0, 0, 0, 0, 9, 0, None))
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
