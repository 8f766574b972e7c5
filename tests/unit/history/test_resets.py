"""What a reset run takes over: keys by what is asked, each once, and tokens above all that were given."""

from __future__ import annotations

from pledger.history import events, resets
from pledger.history.events import ActivityOptions

OPTIONS = ActivityOptions(start_to_close_ms=5)
PAST = [
    (5, events.ScheduleActivity("pay", b"[1]", OPTIONS)),
    (6, events.ScheduleActivity("pay", b"[1]", OPTIONS)),
    (9, events.ScheduleActivity("pay", b"[2]", OPTIONS, None, "declared")),
]
RESET = events.RunReset("R1", 4, "reset", "", "ada", "R1/1", 3_000, None, resets.past_of(PAST, "R1/1"))


def test_the_same_step_gets_its_key_again_each_once() -> None:
    past = resets.Past(RESET)
    taken = [past.take("pay", b"[1]", OPTIONS, None) for _ in range(3)]
    assert [key for _, key in taken] == ["R1/1/5", "R1/1/6", None]
    assert {options.tokens_before for options, _ in taken} == {3_000}
    assert all(options.start_to_close_ms == 5 for options, _ in taken)
    assert past.take("pay", b"[2]", OPTIONS, None)[1] == "declared"
    assert past.take("ship", b"[1]", OPTIONS, None)[1] is None


def test_a_key_that_the_code_declares_is_the_key() -> None:
    past = resets.Past(RESET)
    assert past.take("pay", b"[1]", OPTIONS, "mine") == (ActivityOptions(5, tokens_before=3_000), "mine")
    assert past.take("pay", b"[1]", OPTIONS, None)[1] == "R1/1/5"


def test_what_is_pending_keeps_its_key() -> None:
    plain = resets.taken_over(PAST[0][1], 5, RESET)
    assert (plain.idempotency_key, plain.options.tokens_before) == ("R1/1/5", 3_000)
    later = events.RunReset("R2", 9, "reset", "", "ada", "R2/1", 4_000)
    again = resets.taken_over(plain, 5, later)
    assert (again.idempotency_key, again.options.tokens_before) == ("R1/1/5", 4_000), "that of the first of all runs"


def test_tokens_go_on_above_all_that_may_have_been_given() -> None:
    assert [resets.tokens_above(seen) for seen in (0, 1, 999, 1_000, 1_001)] == [1_000, 1_000, 1_000, 2_000, 2_000]
