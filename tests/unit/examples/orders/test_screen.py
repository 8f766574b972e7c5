"""What the demo prints where there is no terminal, and its verdict."""

from io import StringIO

import pytest
from rich.console import Console

from examples.orders.reconcile import Account, Check, Truth, reconcile
from examples.orders.screen import Progress, Rate, Screen, judge, print_calls


@pytest.fixture
def output() -> StringIO:
    return StringIO()


@pytest.fixture
def console(output: StringIO) -> Console:
    return Console(file=output, width=120)


def test_progress_is_plain_lines_and_not_too_many(console: Console, output: StringIO) -> None:
    progress = Progress(830, started=12, ended={1: "confirmed", 2: "confirmed", 3: "declined"}, kills=2)
    with Screen(console, progress) as screen:
        screen.draw()
        screen.draw()
    (line,) = output.getvalue().splitlines()
    assert "12 of 830 orders in, 2 confirmed, 1 declined, 2 kills" in line


def test_progress_on_a_terminal_is_drawn_in_place(output: StringIO) -> None:
    console = Console(file=output, force_terminal=True, width=120)
    with Screen(console, Progress(830, started=12, ended={1: "confirmed"})) as screen:
        screen.draw()
    assert "under way" in output.getvalue()


def test_the_rate_is_that_of_the_last_seconds() -> None:
    rate = Rate(now=0.0)
    assert rate.per_s == 0
    for second in range(1, 11):
        rate.note(second, total=100 * second)
    assert rate.per_s == 100
    for second in range(11, 21):
        rate.note(second, total=1000)
    assert rate.per_s == 0


def test_the_verdict_is_right_when_every_check_holds(console: Console, output: StringIO) -> None:
    assert judge(console, reconcile({1: 500}, {1: "out_of_stock"}, Truth({})))
    assert "wrong" not in output.getvalue()


def test_the_verdict_names_the_order_that_was_charged_twice(console: Console, output: StringIO) -> None:
    twice = Account(2, 1, 1, 1, 1, 1, paid_cents=500, dispatched=True, told=True, letters=1)
    assert not judge(console, reconcile({4711: 500}, {4711: "confirmed"}, Truth({4711: twice})))
    (line,) = [line for line in output.getvalue().splitlines() if "wrong" in line]
    assert "charged twice" in line
    assert "4711" in line


def test_the_verdict_names_some_of_many_offenders(console: Console, output: StringIO) -> None:
    assert not judge(console, [Check("?", 100, list(range(1, 101)))])
    assert "9, 10 and 90 more" in output.getvalue()


def test_the_calls_are_told_by_what_became_of_them(console: Console, output: StringIO) -> None:
    calls = {("charge", "done"): 5, ("charge", "CardDeclined"): 2, ("charge", None): 1, ("book", "repeated"): 3}
    print_calls(console, Truth({}, calls=calls))
    rows = [line.split() for line in output.getvalue().splitlines() if line.strip().startswith(("book", "charge"))]
    assert rows == [["book", "3", "0", "0", "0", "3", "0"], ["charge", "8", "2", "0", "0", "0", "1"]]
