"""Laws of what is claimed ahead, whatever attempts take and however long claims do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pledger.engine.ahead import ENDS_MAX, ENDS_MIN, PATIENCE_MIN_S, SPAN_S, Pace

GAPS_S = st.lists(st.floats(0, 2), max_size=40)
CLAIMS_S = st.floats(0.0001, 2)
SLOTS = st.integers(1, 1_000)


def paced(gaps_s: list[float], claim_s: float) -> tuple[Pace, float]:
    """With ends after these gaps, and the time of the last one."""
    pace, now_s = Pace(), 0.0
    pace.claimed(claim_s)
    for gap_s in gaps_s:
        now_s += gap_s
        pace.ended(now_s)
    return pace, now_s


@given(GAPS_S, CLAIMS_S, SLOTS, st.floats(0, 2))
def test_there_is_never_more_than_a_row_for_each_slot(
    gaps_s: list[float], claim_s: float, slots: int, later_s: float
) -> None:
    pace, now_s = paced(gaps_s, claim_s)
    assert 0 <= pace.ahead(now_s + later_s, slots) <= slots


@given(st.floats(0.0005, 0.05), CLAIMS_S, SLOTS)
def test_it_is_what_ends_while_a_claim_is_on_its_way(gap_s: float, claim_s: float, slots: int) -> None:
    pace, now_s = paced([gap_s] * (ENDS_MAX * 2), claim_s)
    expected = min(slots, claim_s / gap_s)
    assert expected * 0.9 - 1 <= pace.ahead(now_s, slots) <= expected * 1.1 + 1


@given(st.floats(0.001, 0.1), st.floats(0, 0.49), SLOTS)
def test_where_hardly_one_ends_meanwhile_there_is_none(gap_s: float, share: float, slots: int) -> None:
    pace, now_s = paced([gap_s] * (ENDS_MAX * 2), gap_s * share * (ENDS_MAX - 1) / ENDS_MAX)
    assert pace.ahead(now_s, max(2, slots)) == 0


@given(GAPS_S, CLAIMS_S, SLOTS, st.floats(SPAN_S * 1.01, 100))
def test_a_worker_that_was_idle_begins_anew(gaps_s: list[float], claim_s: float, slots: int, idle_s: float) -> None:
    pace, now_s = paced(gaps_s, claim_s)
    assert pace.ahead(now_s + idle_s, slots) == 0


@given(GAPS_S, CLAIMS_S, SLOTS, st.floats(0, 1), st.floats(0, 1))
def test_the_longer_nothing_ends_the_less_there_is(
    gaps_s: list[float], claim_s: float, slots: int, first_s: float, second_s: float
) -> None:
    pace, now_s = paced(gaps_s, claim_s)
    soon = pace.ahead(now_s + first_s, slots)
    assert pace.ahead(now_s + first_s + second_s, slots) <= soon


@given(GAPS_S, CLAIMS_S, SLOTS, st.integers(0, ENDS_MIN - 1))
def test_after_it_was_too_much_it_is_earned_again(gaps_s: list[float], claim_s: float, slots: int, ends: int) -> None:
    pace, now_s = paced(gaps_s, claim_s)
    pace.falter()
    for _ in range(ends):
        pace.ended(now_s)
    assert pace.ahead(now_s, slots) == 0


@given(st.lists(CLAIMS_S, min_size=1, max_size=20))
def test_whoever_waits_has_the_time_of_some_claims(claims_s: list[float]) -> None:
    pace = Pace()
    for claim_s in claims_s:
        pace.claimed(claim_s)
    assert max(PATIENCE_MIN_S, 3.9 * min(claims_s)) <= pace.patience_s <= max(PATIENCE_MIN_S, 4.1 * max(claims_s))


@given(GAPS_S, SLOTS)
def test_nothing_is_known_before_the_first_claim(gaps_s: list[float], slots: int) -> None:
    pace, now_s = Pace(), 0.0
    for gap_s in gaps_s:
        now_s += gap_s
        pace.ended(now_s)
    assert pace.ahead(now_s, slots) == 0
