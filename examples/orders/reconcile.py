"""Reconciliation: what the ledger says became of each order against what the outside systems really did.

An auditor's view: it reads the outside's tables with its own eyes, shares no code with what filled them, and names the
orders that are wrong.
"""

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: How an order may end. Anything else, such as a run that is still open, is no known terminal state.
ENDINGS = frozenset({"confirmed", "out_of_stock", "declined", "rejected_by_courier", "not_dispatched"})


@dataclass(frozen=True)
class Account:
    """What the outside did for one order. Effects by whether they still stand: a refunded charge is undone.

    paid_cents: the sum of the charges that stand.
    """

    charges: int = 0
    charges_standing: int = 0
    reservations: int = 0
    reservations_standing: int = 0
    bookings: int = 0
    bookings_standing: int = 0
    paid_cents: int = 0
    dispatched: bool = False
    told: bool = False
    letters: int = 0

    @property
    def standing(self) -> tuple[int, int, int]:
        """Charges, reservations and bookings that still stand."""
        return self.charges_standing, self.reservations_standing, self.bookings_standing


@dataclass(frozen=True)
class Truth:
    """The outside's side. accounts: by order id; stock_off: product ids whose units do not add up.

    calls: how often each (operation, outcome) was logged; an outcome of None is a caller that died in the middle.
    """

    accounts: Mapping[int, Account]
    stock_off: list[int] = field(default_factory=list)
    calls: Mapping[tuple[str, str | None], int] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> "Truth":
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            return cls(_accounts(db), _stock_off(db), _calls(db))


def _accounts(db: sqlite3.Connection) -> dict[int, Account]:
    facts: defaultdict[int, dict[str, Any]] = defaultdict(dict)
    for kind, undone in [("charges", "refunded"), ("reservations", "released"), ("bookings", "cancelled")]:
        # The names are the three above, not input.
        query = f"SELECT order_id, count(*), count(*) FILTER (WHERE NOT {undone}) FROM {kind} GROUP BY order_id"  # noqa: S608
        for order_id, made, standing in db.execute(query):
            facts[order_id] |= {kind: made, f"{kind}_standing": standing}
    paid = "SELECT order_id, sum(amount_cents) FROM charges WHERE NOT refunded GROUP BY order_id"
    for order_id, cents in db.execute(paid):
        facts[order_id]["paid_cents"] = cents
    for order_id, told in db.execute("SELECT order_id, told FROM parcels WHERE state = 'dispatched'"):
        facts[order_id] |= {"dispatched": True, "told": bool(told)}
    for order_id, letters in db.execute("SELECT order_id, count(*) FROM letters GROUP BY order_id"):
        facts[order_id]["letters"] = letters
    return {order_id: Account(**found) for order_id, found in facts.items()}


def _stock_off(db: sqlite3.Connection) -> list[int]:
    rows = db.execute("""
        SELECT product_id, opening - on_hand - coalesce(sum(units) FILTER (WHERE NOT released), 0) AS difference
          FROM stock LEFT JOIN reserved_units USING (product_id) LEFT JOIN reservations USING (key)
         GROUP BY product_id HAVING difference <> 0
    """)
    return [product_id for product_id, _ in rows]


def _calls(db: sqlite3.Connection) -> dict[tuple[str, str | None], int]:
    rows = db.execute("SELECT operation, outcome, count(*) FROM calls GROUP BY operation, outcome")
    return {(operation, outcome): count for operation, outcome, count in rows}


@dataclass(frozen=True)
class Check:
    """One question. offenders: the orders (or products) that fail it; examined: how many it was put to."""

    question: str
    examined: int
    offenders: list[int]


#: What is wrong with one order, given its ending in the ledger (None: no run at all) and its account.
Rule = Callable[[str | None, Account], bool]


def reconcile(
    due_cents: Mapping[int, int], ledger: Mapping[int, str], truth: Truth, *, told: Mapping[int, str] | None = None
) -> list[Check]:
    """Every check, passed or not.

    due_cents: by order id, what it costs. ledger: by order id, the run's result, or how else it stands. told: endings
    that were reported while the workers ran; the ledger must not have forgotten or changed any.
    """
    known = due_cents.keys() | truth.accounts.keys() | ledger.keys()

    def ask(question: str, is_wrong: Rule) -> Check:
        offenders = [one for one in sorted(known) if is_wrong(ledger.get(one), truth.accounts.get(one, Account()))]
        return Check(question, len(known), offenders)

    return [
        ask("every order ended in a known state", lambda ending, _: ending not in ENDINGS),
        Check("no order came from nowhere", len(known), sorted(known - due_cents.keys())),
        Check("the ledger stands by every ending it reported", len(told or {}), _revoked(ledger, told or {})),
        ask("no order was charged twice", lambda _, account: account.charges > 1),
        Check("who paid has paid the price, to the cent", len(known), _mispriced(due_cents, truth)),
        ask("a charge that stands belongs to a confirmed order", _is_unearned),
        ask("a confirmed order has one charge, reservation, booking", _is_unfulfilled),
        ask("what did not come about was undone", _is_left_over),
        ask("confirmed is what was dispatched, and nothing else", _is_misdispatched),
        ask("each confirmed customer got one letter, nobody else", _is_misinformed),
        Check("the stock adds up", len(known), truth.stock_off),
    ]


def _revoked(ledger: Mapping[int, str], told: Mapping[int, str]) -> list[int]:
    return sorted(order_id for order_id, ending in told.items() if ledger.get(order_id) != ending)


def _mispriced(due_cents: Mapping[int, int], truth: Truth) -> list[int]:
    return sorted(
        order_id
        for order_id, account in truth.accounts.items()
        if account.charges_standing == 1 and account.paid_cents != due_cents.get(order_id)
    )


def _is_unearned(ending: str | None, account: Account) -> bool:
    return account.charges_standing > 0 and ending != "confirmed"


def _is_unfulfilled(ending: str | None, account: Account) -> bool:
    return ending == "confirmed" and account.standing != (1, 1, 1)


def _is_left_over(ending: str | None, account: Account) -> bool:
    return ending != "confirmed" and account.standing != (0, 0, 0)


def _is_misdispatched(ending: str | None, account: Account) -> bool:
    return account.dispatched != (ending == "confirmed") or account.told != account.dispatched


def _is_misinformed(ending: str | None, account: Account) -> bool:
    return account.letters != (1 if ending == "confirmed" else 0)


def tally(ledger: Mapping[int, str]) -> Iterator[tuple[str, int]]:
    """How many orders ended in each way, the most frequent first."""
    yield from Counter(ledger.values()).most_common()
