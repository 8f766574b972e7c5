"""The orders and products of the Northwind sample, as the example's own types (see data/SOURCE.md)."""

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path

import msgspec

DATA = Path(__file__).parent / "data"

#: The sample's stock levels are those *after* these sales. The warehouse opens with them plus this much of what was
#: sold, so that the shelves are empty for some of the late orders.
RESTOCKED = Decimal("0.95")


@dataclass(frozen=True)
class OrderLine:
    """discount: a share of the price, 0 to 1."""

    product_id: int
    unit_price: Decimal
    quantity: int
    discount: Decimal


@dataclass(frozen=True)
class Order:
    order_id: int
    customer_id: str
    courier: str
    freight: Decimal
    ship_city: str
    ship_country: str
    lines: list[OrderLine]

    @property
    def workflow_id(self) -> str:
        return f"order-{self.order_id}"

    @property
    def amount_cents(self) -> int:
        goods = sum((line.unit_price * line.quantity * (1 - line.discount) for line in self.lines), Decimal(0))
        return round((goods + self.freight) * 100)

    @property
    def quantities(self) -> dict[int, int]:
        """Units by product id."""
        wanted: Counter[int] = Counter()
        for line in self.lines:
            wanted[line.product_id] += line.quantity
        return dict(wanted)


class _Row(msgspec.Struct):
    """What only the loader needs of a line of orders.jsonl. shipped_date: None for the orders that never shipped."""

    order_id: int
    shipped_date: date | None


def load_orders() -> list[Order]:
    """All 830 orders, oldest first."""
    lines = (DATA / "orders.jsonl").read_bytes().splitlines()
    return [msgspec.json.decode(line, type=Order) for line in lines]


def load_never_shipped() -> set[int]:
    """The ids of the 21 orders that no courier ever picked up."""
    lines = (DATA / "orders.jsonl").read_bytes().splitlines()
    rows = [msgspec.json.decode(line, type=_Row) for line in lines]
    return {row.order_id for row in rows if row.shipped_date is None}


def opening_stock(orders: Sequence[Order]) -> dict[int, int]:
    """Units by product id before the first of `orders`; see RESTOCKED."""
    sold: Counter[int] = Counter()
    for order in orders:
        sold.update(order.quantities)
    with (DATA / "products.csv").open(encoding="utf-8", newline="") as file:
        left = {int(row["product_id"]): int(row["units_in_stock"]) for row in csv.DictReader(file)}
    return {product_id: units + int(sold[product_id] * RESTOCKED) for product_id, units in left.items()}
