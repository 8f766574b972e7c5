"""The outside systems: a warehouse, a card processor, couriers, a dispatch board and a post office.

They keep their own truth in their own SQLite file, know nothing of Pledger, and misbehave as real ones do: they are
unavailable, they do what was asked and then do not answer, they are slow, and they refuse for reasons of their own. Who
fails when is drawn from (seed, operation, key, attempt), so that a run can be repeated.

What makes them usable all the same is one courtesy: a request that comes again with the key of an earlier one is
answered as that one was, and nothing is done twice.
"""

import hashlib
import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Self

#: Names the file for worker processes.
FILE_VARIABLE = "ORDERS_OUTSIDE"

SCHEMA = Path(__file__).with_name("outside.sql")

#: Shares of all orders that are refused for good. Drawn by order id alone: asking again does not help.
DECLINED_SHARE = 0.04
REJECTED_SHARE = 0.03


class UnavailableError(Exception):
    """Nothing was done. Trying again helps."""


class NoAnswerError(TimeoutError):
    """It was done, but the caller cannot know that."""


class Refusal(Exception):
    """Nothing was done, and trying again does not help."""


class OutOfStock(Refusal):
    pass


class CardDeclined(Refusal):
    pass


class BookingRejected(Refusal):
    pass


def draw(*key: object) -> float:
    """A number in [0, 1) that is fixed for its key: the same in every process and on every day."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64


@dataclass(frozen=True)
class Temper:
    """How the outside misbehaves. unavailable, no_answer: shares of all requests. Times in seconds, at most."""

    seed: int = 0
    unavailable: float = 0.05
    no_answer: float = 0.05
    courier_s: float = 0.15
    dispatch_s: float = 3.0


@dataclass
class Call:
    """A request being served. outcome: what the log will say."""

    attempt: int
    outcome: str = "done"


class World:
    """The file, and the rule that every request is written down before and after it is served.

    May be used from several threads: they take turns.
    """

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
        # Survives a killed process, which is all that is done to it here; power loss is not part of the show.
        self._db.execute("PRAGMA synchronous = OFF")
        self._turn = threading.Lock()
        stored = self._db.execute("SELECT value FROM settings WHERE name = 'temper'").fetchone()
        self.temper = Temper(**json.loads(stored[0]))

    @classmethod
    def create(
        cls, path: Path, stock: Mapping[int, int], *, no_shows: Iterable[int] = (), temper: Temper | None = None
    ) -> Self:
        """A new world. stock: units by product id. no_shows: orders that no courier will ever pick up."""
        db = sqlite3.connect(path, isolation_level=None)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = OFF")
        db.executescript(SCHEMA.read_text(encoding="utf-8"))
        db.execute("BEGIN")
        db.executemany("INSERT INTO stock VALUES (?, ?, ?)", [(one, units, units) for one, units in stock.items()])
        db.executemany("INSERT INTO no_shows VALUES (?)", [(order_id,) for order_id in no_shows])
        db.execute("INSERT INTO settings VALUES ('temper', ?)", [json.dumps(asdict(temper or Temper()))])
        db.execute("COMMIT")
        db.close()
        return cls(path)

    def close(self) -> None:
        self._db.close()

    def answered(self) -> int:
        """How many requests got an answer so far."""
        with self.transaction() as db:
            (count,) = db.execute("SELECT count(*) FROM calls WHERE outcome IS NOT NULL").fetchone()
        return int(count)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        with self._turn:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    @contextmanager
    def request(self, operation: str, key: str) -> Iterator[Call]:
        """Serve one request: log it, misbehave if the draw says so, log how it ended.

        Raises UnavailableError before the body has run, or NoAnswerError after it.
        """
        with self.transaction() as db:
            (attempt,) = db.execute(
                "SELECT count(*) + 1 FROM calls WHERE operation = ? AND key = ?", [operation, key]
            ).fetchone()
            call_id = db.execute(
                "INSERT INTO calls (operation, key, attempt) VALUES (?, ?, ?)", [operation, key, attempt]
            ).lastrowid
        call = Call(attempt)
        mishap = draw(self.temper.seed, operation, key, attempt)
        try:
            if mishap < self.temper.unavailable:
                raise UnavailableError(f"{operation} {key}: try again later")
            yield call
            if mishap > 1 - self.temper.no_answer:
                raise NoAnswerError(f"{operation} {key}: no answer")
        except Exception as error:
            call.outcome = type(error).__name__
            raise
        finally:
            with self.transaction() as db:
                db.execute("UPDATE calls SET outcome = ? WHERE call_id = ?", [call.outcome, call_id])


class Warehouse:
    def __init__(self, world: World) -> None:
        self._world = world

    def reserve(self, key: str, order_id: int, quantities: Mapping[int, int]) -> None:
        """Set the units aside, all or none. Raises OutOfStock."""
        with self._world.request("reserve", key) as call, self._world.transaction() as db:
            if db.execute("SELECT 1 FROM reservations WHERE key = ?", [key]).fetchone():
                call.outcome = "repeated"
                return
            db.execute("INSERT INTO reservations (key, order_id) VALUES (?, ?)", [key, order_id])
            for product_id, units in quantities.items():
                taken = db.execute(
                    "UPDATE stock SET on_hand = on_hand - ? WHERE product_id = ? AND on_hand >= ?",
                    [units, product_id, units],
                )
                if not taken.rowcount:
                    raise OutOfStock(f"order {order_id}: fewer than {units} of product {product_id} left")
                db.execute("INSERT INTO reserved_units VALUES (?, ?, ?)", [key, product_id, units])

    def release(self, key: str) -> None:
        """Put the units of a reservation back on the shelf."""
        with self._world.request("release", key) as call, self._world.transaction() as db:
            done = db.execute("UPDATE reservations SET released = 1 WHERE key = ? AND NOT released", [key])
            if not done.rowcount:
                call.outcome = "repeated"
                return
            db.execute(
                "UPDATE stock SET on_hand = on_hand + reserved_units.units FROM reserved_units"
                " WHERE reserved_units.key = ? AND reserved_units.product_id = stock.product_id",
                [key],
            )


class CardProcessor:
    def __init__(self, world: World) -> None:
        self._world = world

    def charge(self, key: str, order_id: int, amount_cents: int) -> None:
        """Take the money. Raises CardDeclined."""
        with self._world.request("charge", key) as call, self._world.transaction() as db:
            if db.execute("UPDATE charges SET repeats = repeats + 1 WHERE key = ?", [key]).rowcount:
                call.outcome = "repeated"
            elif draw("card", order_id) < DECLINED_SHARE:
                raise CardDeclined(f"order {order_id}: the bank says no")
            else:
                db.execute(
                    "INSERT INTO charges (key, order_id, amount_cents) VALUES (?, ?, ?)", [key, order_id, amount_cents]
                )

    def refund(self, key: str) -> None:
        """Give back what was charged under the key."""
        with self._world.request("refund", key) as call, self._world.transaction() as db:
            if not db.execute("UPDATE charges SET refunded = 1 WHERE key = ? AND NOT refunded", [key]).rowcount:
                call.outcome = "repeated"


class Couriers:
    def __init__(self, world: World) -> None:
        self._world = world

    def book(self, key: str, order_id: int, courier: str) -> None:
        """Have the parcel picked up; it then waits on the dispatch board. Slow. Raises BookingRejected."""
        temper = self._world.temper
        with self._world.request("book", key) as call:
            # Outside the transaction: somebody else's slowness must not hold up the others.
            time.sleep(temper.courier_s * draw("slow", key, call.attempt))
            with self._world.transaction() as db:
                if db.execute("SELECT 1 FROM bookings WHERE key = ?", [key]).fetchone():
                    call.outcome = "repeated"
                    return
                if draw("courier", order_id) < REJECTED_SHARE:
                    raise BookingRejected(f"order {order_id}: {courier} does not take it")
                db.execute("INSERT INTO bookings (key, order_id, courier) VALUES (?, ?, ?)", [key, order_id, courier])
                comes = not db.execute("SELECT 1 FROM no_shows WHERE order_id = ?", [order_id]).fetchone()
                due_at = time.time() + temper.dispatch_s * draw(temper.seed, "pick-up", order_id) if comes else None
                db.execute("INSERT OR IGNORE INTO parcels (order_id, due_at) VALUES (?, ?)", [order_id, due_at])

    def cancel(self, key: str) -> None:
        """Call the courier off."""
        with self._world.request("cancel", key) as call, self._world.transaction() as db:
            if not db.execute("UPDATE bookings SET cancelled = 1 WHERE key = ? AND NOT cancelled", [key]).rowcount:
                call.outcome = "repeated"


class DispatchBoard:
    """What leaves the house and when. `dispatch_due` and `untold` are its own people's; the shop only withdraws."""

    def __init__(self, world: World) -> None:
        self._world = world

    def withdraw(self, key: str, order_id: int) -> bool:
        """Take a parcel back before it leaves; False when it has left already."""
        with self._world.request("withdraw", key), self._world.transaction() as db:
            db.execute("UPDATE parcels SET state = 'withdrawn' WHERE order_id = ? AND state = 'waiting'", [order_id])
            (state,) = db.execute("SELECT state FROM parcels WHERE order_id = ?", [order_id]).fetchone()
            return bool(state == "withdrawn")

    def dispatch_due(self, now: float) -> None:
        """Hand over every parcel whose courier is here. now: seconds since 1970."""
        with self._world.transaction() as db:
            db.execute("UPDATE parcels SET state = 'dispatched' WHERE state = 'waiting' AND due_at <= ?", [now])

    def untold(self) -> list[int]:
        """Orders that have left and of which the shop has not acknowledged that it knows."""
        with self._world.transaction() as db:
            rows = db.execute("SELECT order_id FROM parcels WHERE state = 'dispatched' AND NOT told").fetchall()
        return [order_id for (order_id,) in rows]

    def note_told(self, order_id: int) -> None:
        with self._world.transaction() as db:
            db.execute("UPDATE parcels SET told = 1 WHERE order_id = ?", [order_id])


class PostOffice:
    def __init__(self, world: World) -> None:
        self._world = world

    def confirm(self, key: str, order_id: int) -> None:
        """Tell the customer that the order is on its way."""
        with self._world.request("confirm", key) as call, self._world.transaction() as db:
            sent = db.execute("INSERT INTO letters VALUES (?, ?) ON CONFLICT DO NOTHING", [key, order_id])
            if not sent.rowcount:
                call.outcome = "repeated"


@cache
def world() -> World:
    """The world of this process, whose file the environment names."""
    return World(Path(os.environ[FILE_VARIABLE]))
