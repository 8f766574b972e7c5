"""The fake outside systems: they fail as they should, and keep their promises about repeated keys."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from examples.orders.orders import load_never_shipped, load_orders, opening_stock
from examples.orders.outside import (
    DECLINED_SHARE,
    REJECTED_SHARE,
    BookingRejected,
    CardDeclined,
    CardProcessor,
    Couriers,
    DispatchBoard,
    NoAnswerError,
    OutOfStock,
    PostOffice,
    Temper,
    UnavailableError,
    Warehouse,
    World,
    draw,
)

GENTLE = Temper(unavailable=0, no_answer=0, courier_s=0, dispatch_s=0)
NO_SHOW = 99


def fortunate(system: str, share: float, *, lucky: bool = True) -> int:
    """An order id that the system takes (or refuses) for good."""
    return next(one for one in range(1, 1000) if (draw(system, one) >= share) is lucky)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "outside.db"


@pytest.fixture
def world(path: Path) -> Iterator[World]:
    with closing(World.create(path, {1: 10, 2: 3}, no_shows=[NO_SHOW], temper=GENTLE)) as world:
        yield world


def rows(path: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(query).fetchall()


def outcomes(path: Path) -> list[Any]:
    return [outcome for (outcome,) in rows(path, "SELECT outcome FROM calls ORDER BY call_id")]


def test_a_reservation_takes_units_once_and_gives_them_back_once(world: World, path: Path) -> None:
    warehouse = Warehouse(world)
    for _ in range(2):
        warehouse.reserve("r", 7, {1: 4, 2: 1})
    assert rows(path, "SELECT on_hand FROM stock ORDER BY product_id") == [(6,), (2,)]
    for _ in range(2):
        warehouse.release("r")
    assert rows(path, "SELECT on_hand FROM stock ORDER BY product_id") == [(10,), (3,)]
    assert outcomes(path) == ["done", "repeated", "done", "repeated"]


def test_a_reservation_is_all_or_nothing(world: World, path: Path) -> None:
    with pytest.raises(OutOfStock, match="order 7"):
        Warehouse(world).reserve("r", 7, {1: 4, 2: 4})
    assert rows(path, "SELECT on_hand FROM stock ORDER BY product_id") == [(10,), (3,)]
    assert rows(path, "SELECT * FROM reservations") == []
    assert outcomes(path) == ["OutOfStock"]


def test_a_charge_with_a_known_key_takes_no_money_and_is_counted(world: World, path: Path) -> None:
    order_id = fortunate("card", DECLINED_SHARE)
    for _ in range(3):
        CardProcessor(world).charge("c", order_id, 500)
    assert rows(path, "SELECT order_id, amount_cents, repeats FROM charges") == [(order_id, 500, 2)]


def test_a_charge_with_another_key_takes_the_money_again(world: World, path: Path) -> None:
    # The processor does not protect its callers from themselves: a double charge must be possible to be found.
    order_id = fortunate("card", DECLINED_SHARE)
    CardProcessor(world).charge("c1", order_id, 500)
    CardProcessor(world).charge("c2", order_id, 500)
    assert rows(path, "SELECT count(*) FROM charges") == [(2,)]


def test_refusals_are_for_good(world: World, path: Path) -> None:
    for _ in range(2):
        with pytest.raises(CardDeclined):
            CardProcessor(world).charge("c", fortunate("card", DECLINED_SHARE, lucky=False), 500)
        with pytest.raises(BookingRejected):
            Couriers(world).book("b", fortunate("courier", REJECTED_SHARE, lucky=False), "Speedy Express")
    assert rows(path, "SELECT count(*) FROM charges") == rows(path, "SELECT count(*) FROM bookings") == [(0,)]


def test_a_booked_parcel_leaves_the_house_and_can_then_not_be_withdrawn(world: World) -> None:
    order_id, board = fortunate("courier", REJECTED_SHARE), DispatchBoard(world)
    Couriers(world).book("b", order_id, "Speedy Express")
    board.dispatch_due(now=float("inf"))
    assert board.untold() == [order_id]
    assert not board.withdraw("w", order_id)
    board.note_told(order_id)
    assert board.untold() == []


def test_a_withdrawn_parcel_does_not_leave(world: World) -> None:
    order_id, board = fortunate("courier", REJECTED_SHARE), DispatchBoard(world)
    Couriers(world).book("b", order_id, "Speedy Express")
    assert board.withdraw("w", order_id)
    assert board.withdraw("w", order_id)
    board.dispatch_due(now=float("inf"))
    assert board.untold() == []


def test_no_courier_comes_for_a_no_show(world: World) -> None:
    Couriers(world).book("b", NO_SHOW, "Speedy Express")
    board = DispatchBoard(world)
    board.dispatch_due(now=float("inf"))
    assert board.untold() == []


@pytest.mark.parametrize(
    "ask",
    [
        lambda world: Warehouse(world).reserve("k", 1, {1: 1}),
        lambda world: CardProcessor(world).charge("k", fortunate("card", DECLINED_SHARE), 1),
        lambda world: Couriers(world).book("k", fortunate("courier", REJECTED_SHARE), "Speedy Express"),
        lambda world: PostOffice(world).confirm("k", 1),
    ],
)
def test_no_answer_means_done_and_the_same_key_finds_it(path: Path, ask: Callable[[World], None]) -> None:
    with closing(World.create(path, {1: 10}, temper=Temper(unavailable=0, no_answer=1, courier_s=0))) as world:
        for _ in range(2):
            with pytest.raises(NoAnswerError):
                ask(world)
    effects = "SELECT key FROM reservations UNION ALL SELECT key FROM charges UNION ALL SELECT key FROM bookings"
    assert rows(path, f"{effects} UNION ALL SELECT key FROM letters") == [("k",)]
    assert outcomes(path) == ["NoAnswerError", "NoAnswerError"]


def test_unavailable_means_not_done(path: Path) -> None:
    with (
        closing(World.create(path, {1: 10}, temper=Temper(unavailable=1, no_answer=0))) as world,
        pytest.raises(UnavailableError),
    ):
        Warehouse(world).reserve("k", 1, {1: 1})
    assert rows(path, "SELECT count(*) FROM reservations") == [(0,)]
    assert outcomes(path) == ["UnavailableError"]


def test_mishaps_depend_on_the_seed_the_key_and_the_attempt_alone(tmp_path: Path) -> None:
    def mishaps(name: str, seed: int) -> list[str]:
        temper = Temper(seed=seed, unavailable=0.3, no_answer=0.3)
        with closing(World.create(tmp_path / name, {}, temper=temper)) as world:
            for attempt in range(40):
                try:
                    PostOffice(world).confirm(f"k{attempt % 10}", 1)
                except (UnavailableError, NoAnswerError):
                    continue
        return outcomes(tmp_path / name)

    assert mishaps("a", 1) == mishaps("b", 1)
    assert mishaps("c", 1) != mishaps("d", 2)


def test_a_caller_that_dies_in_the_middle_leaves_a_call_without_outcome(world: World, path: Path) -> None:
    # As a kill between the two log entries does: the first is committed before the request is served.
    with world.request("reserve", "r"):
        assert outcomes(path) == [None]
    assert outcomes(path) == ["done"]


def test_two_processes_see_one_world(world: World, path: Path) -> None:
    Warehouse(world).reserve("r", 1, {2: 3})
    with closing(World(path)) as other:
        assert other.temper == world.temper
        with pytest.raises(OutOfStock):
            Warehouse(other).reserve("s", 2, {2: 1})


def test_the_sample_is_whole_and_its_stock_runs_out_for_some() -> None:
    orders = load_orders()
    assert len(orders) == 830
    assert sum(len(order.lines) for order in orders) == 2155
    assert len(load_never_shipped()) == 21
    assert orders[0].amount_cents == 44000 + 3238  # 12 x 14.00 + 10 x 9.80 + 5 x 34.80, and 32.38 of freight
    on_hand = opening_stock(orders)
    assert len(on_hand) == 77
    unlucky = 0
    for order in orders:
        if all(on_hand[product_id] >= units for product_id, units in order.quantities.items()):
            for product_id, units in order.quantities.items():
                on_hand[product_id] -= units
        else:
            unlucky += 1
    assert 10 < unlucky < 60
