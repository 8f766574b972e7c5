"""The state of a dependency: its budget, and its circuit breaker."""

from __future__ import annotations

from typing import Any

from pledger.engine.port import circuit
from pledger.engine.port.circuit import CHANGES_MAX, Dependency, Tally
from pledger.history.budget import BudgetRule

NOW = 1_000_000
RULE = BudgetRule(
    ratio=0.5, minimum_per_second=2.0, window_ms=10_000, minimum_calls=4, pause_ms=1_000, pause_max_ms=3_000
)
NO_BREAKER = BudgetRule(failure_ratio=None)


def new(rule: BudgetRule = RULE) -> Dependency:
    return circuit.new(rule, NOW)


def noted(found: Dependency, now_ms: int = NOW, **tally: Any) -> Dependency:
    return circuit.noted(found, [Tally(tally.pop("opened", found.opened), **tally)], now_ms)


def opened(now_ms: int = NOW) -> Dependency:
    found = noted(new(), now_ms, calls=4, failed=4)
    assert found.phase == "open"
    return found


def probing() -> Dependency:
    return circuit.seen(opened(), NOW + 1_000)


def taken(found: Dependency, retries: int) -> Dependency:
    for _ in range(retries):
        found = circuit.granted(found, is_retry=True, in_use=0)
    return found


# The budget -----------------------------------------------------------------------------------------------------------


def test_at_first_there_is_one_second_of_it() -> None:
    found = new()
    assert circuit.retry_due_ms(found) is None
    assert circuit.retry_due_ms(taken(found, 1)) is None
    assert circuit.retry_due_ms(taken(found, 2)) == NOW + 500


def test_a_minimum_below_one_has_room_for_one() -> None:
    found = new(BudgetRule(minimum_per_second=0.1))
    assert circuit.retry_due_ms(found) is None
    assert circuit.retry_due_ms(taken(found, 1)) == NOW + 10_000


def test_calls_add_a_share() -> None:
    found = noted(taken(new(), 2), calls=6)
    assert found.tokens == 3
    assert noted(found, calls=0).tokens == 3


def test_there_is_no_more_in_it_than_the_window_has_brought() -> None:
    found = noted(new(), calls=10)
    assert (found.tokens, found.total.calls) == (7, 10)
    later = circuit.seen(found, NOW + 20_000)
    assert (later.tokens, later.total.calls) == (2, 0)


def test_retries_are_counted() -> None:
    found = taken(new(), 2)
    assert found.total.retries == 2
    assert found.tokens == 0


def test_a_time_that_is_a_little_behind_adds_nothing_twice() -> None:
    found = circuit.seen(taken(new(), 2), NOW + 500)
    behind = circuit.seen(found, NOW)
    assert behind.tokens == 1
    assert circuit.seen(behind, NOW + 500).tokens == 1


def test_a_clock_that_went_back_is_not_waited_for() -> None:
    found = circuit.seen(taken(new(), 2), NOW - 3_600_000)
    assert circuit.retry_due_ms(found) == NOW - 3_600_000 + 500
    waiting = circuit.seen(opened(), NOW - 3_600_000)
    assert (waiting.phase, waiting.until_ms) == ("open", NOW - 3_600_000 + 1_000)


# The breaker ----------------------------------------------------------------------------------------------------------


def test_it_opens_on_a_share_of_failures() -> None:
    assert noted(new(), succeeded=3, failed=2).phase == "closed"
    found = noted(new(), succeeded=2, failed=2, last_failure="ConnectionError: refused")
    assert (found.phase, found.opened, found.until_ms) == ("open", 1, NOW + 1_000)
    assert found.reason == "2 of 4 attempts failed within 10 s, the last one with ConnectionError: refused"


def test_few_attempts_do_not_open_it() -> None:
    assert noted(new(), failed=3).phase == "closed"


def test_failures_of_long_ago_do_not_count() -> None:
    found = noted(new(), failed=3)
    assert noted(found, NOW + 10_000, failed=3).phase == "closed"
    assert noted(found, NOW + 5_000, failed=1).phase == "open"


def test_without_a_breaker_it_never_opens() -> None:
    assert noted(new(NO_BREAKER), failed=1_000).phase == "closed"


def test_after_the_pause_one_at_a_time() -> None:
    found = opened()
    assert found.concurrency == 0
    assert circuit.seen(found, NOW + 999).phase == "open"
    half = probing()
    assert (half.phase, half.concurrency) == ("half_open", 1)


def test_a_probe_that_fails_makes_the_next_pause_twice_as_long() -> None:
    found, pauses = opened(), []
    for _ in range(3):
        pauses.append(found.pause_ms)
        found = noted(found, found.until_ms, failed=1)
        assert found.phase == "open"
    assert [*pauses, found.pause_ms] == [1_000, 2_000, 3_000, 3_000]


def test_a_pause_after_it_has_closed_is_short_again() -> None:
    closed = circuit.resumed(noted(opened(), NOW + 1_000, failed=1), "", "ada", NOW + 1_000, at_once=True)
    assert noted(closed, NOW + 1_000, failed=4).pause_ms == 1_000


def test_it_doubles_while_all_are_in_use_and_closes_when_they_are_not() -> None:
    found, limits = probing(), []
    for _ in range(4):
        limits.append(found.limit)
        found = circuit.granted(found, is_retry=False, in_use=found.limit)
        found = noted(found, NOW + 1_000, succeeded=found.limit)
    assert limits == [1, 2, 4, 8]
    found = circuit.granted(found, is_retry=False, in_use=15)
    assert noted(found, NOW + 1_000, succeeded=16).phase == "closed"


def test_it_closes_when_few_are_asked_for_during_a_window() -> None:
    found = noted(circuit.granted(probing(), is_retry=False, in_use=1), NOW + 1_000, succeeded=1)
    assert found.limit == 2
    assert circuit.seen(found, NOW + 10_999).phase == "half_open"
    assert circuit.seen(found, NOW + 11_000).phase == "closed"


def test_without_a_probe_it_does_not_close() -> None:
    assert circuit.seen(opened(), NOW + 3_600_000).phase == "half_open"
    assert circuit.seen(probing(), NOW + 3_600_000).phase == "half_open"


def test_a_share_of_those_let_through_may_fail() -> None:
    found = circuit.granted(probing(), is_retry=False, in_use=1)
    found = noted(found, NOW + 1_000, succeeded=1)
    found = noted(circuit.granted(found, is_retry=False, in_use=2), NOW + 1_000, succeeded=2)
    assert found.limit == 4
    assert noted(found, NOW + 1_000, succeeded=2, failed=1).phase == "half_open"
    assert noted(found, NOW + 1_000, failed=2).phase == "open"


def test_what_began_before_it_opened_does_not_count() -> None:
    assert noted(probing(), NOW + 1_000, opened=0, failed=5).phase == "half_open"
    assert noted(probing(), NOW + 1_000, opened=0, succeeded=5).limit == 1
    closed = circuit.resumed(opened(), "", "ada", NOW, at_once=True)
    assert noted(closed, opened=0, failed=9).phase == "closed"


def test_what_failed_before_it_closed_does_not_open_it_again() -> None:
    closed = circuit.resumed(opened(), "", "ada", NOW, at_once=True)
    assert (closed.phase, closed.total.failed, closed.total.calls) == ("closed", 0, 4)
    assert noted(closed, failed=3).phase == "closed"


# Operators ------------------------------------------------------------------------------------------------------------


def test_a_pause_takes_an_operator_to_end() -> None:
    found = circuit.paused(new(), "moving", "ada", NOW)
    assert (found.phase, found.concurrency, found.reason, found.by) == ("paused", 0, "moving", "ada")
    assert circuit.seen(found, NOW + 3_600_000).phase == "paused"
    assert noted(found, failed=9, succeeded=9).phase == "paused"
    assert circuit.paused(found, "again", "eve", NOW + 5) == circuit.seen(found, NOW + 5)
    resumed = circuit.resumed(found, "moved", "bob", NOW + 9, at_once=False)
    assert (resumed.phase, resumed.limit, resumed.by, resumed.since_ms) == ("half_open", 1, "bob", NOW + 9)


def test_what_is_paused_has_its_attempts_from_before_count_no_more() -> None:
    resumed = circuit.resumed(circuit.paused(new(), "", "ada", NOW), "", "ada", NOW, at_once=False)
    assert noted(resumed, opened=0, failed=3).phase == "half_open"


def test_an_operator_may_try_before_the_pause_is_over() -> None:
    assert circuit.resumed(opened(), "", "ada", NOW, at_once=False).phase == "half_open"
    assert circuit.resumed(opened(), "", "ada", NOW, at_once=True).phase == "closed"


def test_resuming_what_goes_on_changes_nothing() -> None:
    for found in (new(), probing()):
        now_ms = found.filled_ms
        assert circuit.resumed(found, "why", "ada", now_ms, at_once=False) == found
    assert circuit.resumed(new(), "why", "ada", NOW, at_once=True) == new()


def test_without_a_breaker_a_resume_is_at_once() -> None:
    found = circuit.paused(new(NO_BREAKER), "", "ada", NOW)
    assert circuit.resumed(found, "", "ada", NOW, at_once=False).phase == "closed"


def test_changes_are_remembered_but_not_for_ever() -> None:
    found = new()
    for n in range(CHANGES_MAX):
        found = circuit.paused(found, f"{n}", "ada", NOW + n)
        found = circuit.resumed(found, f"{n}", "bob", NOW + n, at_once=True)
    assert len(found.changes) == CHANGES_MAX
    assert [(each.phase, each.by) for each in found.changes[-2:]] == [("paused", "ada"), ("closed", "bob")]


# What workers say -----------------------------------------------------------------------------------------------------


def test_other_numbers_keep_what_was_counted() -> None:
    rule = BudgetRule(window_ms=RULE.window_ms, ratio=0.2)
    found = circuit.stated(noted(new(), calls=3), rule, ["b", "a"], NOW)
    assert (found.rule, found.total.calls, found.activity_types) == (rule, 3, ("a", "b"))
    assert circuit.stated(found, rule, ["c"], NOW).activity_types == ("a", "b", "c")


def test_another_window_counts_anew() -> None:
    found = circuit.stated(noted(new(), failed=3), BudgetRule(window_ms=20_000, minimum_calls=4), [], NOW)
    assert noted(found, failed=3).phase == "closed"


def test_a_breaker_that_is_stated_no_more_lets_all_through() -> None:
    found = circuit.stated(opened(), NO_BREAKER, [], NOW)
    assert (found.phase, found.changes[-1].reason) == ("closed", "the code states no circuit breaker any more")
    paused = circuit.paused(new(), "", "ada", NOW)
    assert circuit.stated(paused, NO_BREAKER, [], NOW).phase == "paused"


def test_it_comes_back_from_its_row_as_it_was() -> None:
    found = noted(opened(), NOW + 1_000, calls=3, failed=1, last_failure="\ud7ff \x00 ü")
    assert circuit.decode(circuit.encode(found)) == found
