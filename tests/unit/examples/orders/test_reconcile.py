"""The reconciliation finds what is wrong, and says nothing when nothing is. Each test plants one wrong."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from examples.orders.outside import (
    DECLINED_SHARE,
    REJECTED_SHARE,
    CardProcessor,
    Couriers,
    DispatchBoard,
    PostOffice,
    Temper,
    Warehouse,
    World,
    draw,
)
from examples.orders.reconcile import Account, Check, Truth, reconcile

CONFIRMED, DECLINED, OUT_OF_STOCK, NOT_DISPATCHED = 1, 2, 3, 4

LEDGER = {
    CONFIRMED: "confirmed",
    DECLINED: "declined",
    OUT_OF_STOCK: "out_of_stock",
    NOT_DISPATCHED: "not_dispatched",
}
PRICE = 500
PRICES = dict.fromkeys(LEDGER, PRICE)
FULFILLED = Account(1, 1, 1, 1, 1, 1, paid_cents=PRICE, dispatched=True, told=True, letters=1)
TRUTH = Truth(
    {
        CONFIRMED: FULFILLED,
        DECLINED: Account(reservations=1),
        NOT_DISPATCHED: Account(charges=1, reservations=1, bookings=1),
    }
)


def findings(ledger: dict[int, str], truth: Truth) -> dict[str, list[int]]:
    return {check.question: check.offenders for check in reconcile(PRICES, ledger, truth) if check.offenders}


def with_account(order_id: int, account: Account) -> Truth:
    return replace(TRUTH, accounts={**TRUTH.accounts, order_id: account})


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    assert findings(LEDGER, TRUTH) == {}
    assert all(check.examined == 4 for check in reconcile(PRICES, LEDGER, TRUTH, told=LEDGER))


def test_a_lost_order_is_found() -> None:
    ledger = {order_id: ending for order_id, ending in LEDGER.items() if order_id != OUT_OF_STOCK}
    assert findings(ledger, TRUTH) == {"every order ended in a known state": [OUT_OF_STOCK]}


@pytest.mark.parametrize("ending", ["running", "failed", "terminated", "blocked"])
def test_an_order_without_a_known_end_is_found(ending: str) -> None:
    assert findings({**LEDGER, OUT_OF_STOCK: ending}, TRUTH) == {"every order ended in a known state": [OUT_OF_STOCK]}


def test_a_double_charge_is_found_even_when_one_of_the_two_was_refunded() -> None:
    assert findings(LEDGER, with_account(CONFIRMED, replace(FULFILLED, charges=2))) == {
        "no order was charged twice": [CONFIRMED]
    }


def test_a_charge_that_nobody_earned_is_found() -> None:
    found = findings(LEDGER, with_account(DECLINED, Account(charges=1, charges_standing=1, paid_cents=PRICE)))
    assert found["a charge that stands belongs to a confirmed order"] == [DECLINED]


@pytest.mark.parametrize(
    "missing",
    [{"charges_standing": 0}, {"reservations_standing": 0}, {"bookings_standing": 0}, {"charges_standing": 2}],
)
def test_a_confirmed_order_that_lacks_something_is_found(missing: dict[str, int]) -> None:
    assert findings(LEDGER, with_account(CONFIRMED, replace(FULFILLED, **missing))) == {
        "a confirmed order has one charge, reservation, booking": [CONFIRMED]
    }


def test_a_payment_that_is_off_by_a_cent_is_found() -> None:
    assert findings(LEDGER, with_account(CONFIRMED, replace(FULFILLED, paid_cents=PRICE - 1))) == {
        "who paid has paid the price, to the cent": [CONFIRMED]
    }


def test_a_forgotten_compensation_is_found() -> None:
    assert findings(LEDGER, with_account(DECLINED, Account(reservations=1, reservations_standing=1))) == {
        "what did not come about was undone": [DECLINED]
    }


@pytest.mark.parametrize("wrong", [{"dispatched": False, "told": False}, {"told": False}])
def test_a_confirmed_order_that_did_not_leave_or_was_not_acknowledged_is_found(wrong: dict[str, bool]) -> None:
    assert findings(LEDGER, with_account(CONFIRMED, replace(FULFILLED, **wrong))) == {
        "confirmed is what was dispatched, and nothing else": [CONFIRMED]
    }


def test_a_dispatch_that_the_ledger_lost_is_found() -> None:
    undone = Account(charges=1, reservations=1, bookings=1, dispatched=True, told=True)
    assert findings(LEDGER, with_account(NOT_DISPATCHED, undone)) == {
        "confirmed is what was dispatched, and nothing else": [NOT_DISPATCHED]
    }


@pytest.mark.parametrize("letters", [0, 2])
def test_a_customer_who_was_not_told_or_told_twice_is_found(letters: int) -> None:
    assert findings(LEDGER, with_account(CONFIRMED, replace(FULFILLED, letters=letters))) == {
        "each confirmed customer got one letter, nobody else": [CONFIRMED]
    }


@pytest.mark.parametrize("told", [{DECLINED: "confirmed"}, {99: "confirmed"}])
def test_a_ledger_that_does_not_stand_by_its_word_is_found(told: dict[int, str]) -> None:
    (found,) = [check for check in reconcile(PRICES, LEDGER, TRUTH, told=told) if check.offenders]
    assert (found.question, found.offenders) == ("the ledger stands by every ending it reported", list(told))


def test_an_order_from_nowhere_is_found() -> None:
    found = findings(LEDGER, with_account(5, Account(reservations=1)))
    assert found["no order came from nowhere"] == [5]


def test_stock_that_does_not_add_up_is_found() -> None:
    assert findings(LEDGER, replace(TRUTH, stock_off=[11])) == {"the stock adds up": [11]}


# Against the outside's own file ---------------------------------------------------------------------------------------

ORDER = next(
    one for one in range(1, 1000) if draw("card", one) >= DECLINED_SHARE and draw("courier", one) >= REJECTED_SHARE
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "outside.db"


@pytest.fixture
def fulfilled(path: Path) -> Iterator[World]:
    """A world that has fulfilled one order, by the book."""
    with closing(World.create(path, {1: 10, 2: 5}, temper=Temper(unavailable=0, no_answer=0, courier_s=0))) as world:
        board = DispatchBoard(world)
        Warehouse(world).reserve("r", ORDER, {1: 3, 2: 1})
        CardProcessor(world).charge("c", ORDER, PRICE)
        Couriers(world).book("b", ORDER, "Speedy Express")
        board.dispatch_due(now=float("inf"))
        board.note_told(ORDER)
        PostOffice(world).confirm("p", ORDER)
        yield world


def audit(path: Path) -> list[Check]:
    return [check for check in reconcile({ORDER: PRICE}, {ORDER: "confirmed"}, Truth.read(path)) if check.offenders]


def test_the_truth_is_read_as_it_was_made(fulfilled: World, path: Path) -> None:
    truth = Truth.read(path)
    assert truth.accounts == {ORDER: FULFILLED}
    assert truth.calls[("charge", "done")] == 1
    assert audit(path) == []


def test_a_second_charge_in_the_file_is_found(fulfilled: World, path: Path) -> None:
    CardProcessor(fulfilled).charge("another key", ORDER, PRICE)
    assert [check.question for check in audit(path)] == [
        "no order was charged twice",
        "a confirmed order has one charge, reservation, booking",
    ]


def test_a_repeated_charge_with_the_same_key_is_no_double_charge(fulfilled: World, path: Path) -> None:
    CardProcessor(fulfilled).charge("c", ORDER, PRICE)
    assert audit(path) == []
    assert Truth.read(path).calls[("charge", "repeated")] == 1


def test_undone_effects_stand_no_more(fulfilled: World, path: Path) -> None:
    Warehouse(fulfilled).release("r")
    CardProcessor(fulfilled).refund("c")
    Couriers(fulfilled).cancel("b")
    assert Truth.read(path).accounts[ORDER].standing == (0, 0, 0)
    assert Truth.read(path).stock_off == []


def test_a_unit_that_went_missing_is_found(fulfilled: World, path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE stock SET on_hand = on_hand - 1 WHERE product_id = 2")
    assert [(check.question, check.offenders) for check in audit(path)] == [("the stock adds up", [2])]
