"""Lab 1: a crash between doing and recording.

    python -m examples.labs.crash

A worker charges a card and is killed before it can tell the ledger. Nobody can know from the ledger alone whether the
charge was made, so the next worker makes it again: an activity runs *at least* once. What makes that harmless is a key
by which the bank recognises the request.
"""

import asyncio
import os
import signal
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

from pledger import Worker, activity, connect, workflow
from pledger.client import WorkflowHandle

PRICE_CENTS = 4_900

#: Names the bank's file.
BANK_VARIABLE = "LAB_BANK"


# The outside ----------------------------------------------------------------------------------------------------------


class Bank:
    """Its books are a file of its own. Only by their key can it tell that two requests are one."""

    def __init__(self) -> None:
        self._path = os.environ[BANK_VARIABLE]
        with closing(sqlite3.connect(self._path)) as db, db:
            db.execute("CREATE TABLE IF NOT EXISTS charges (number INTEGER PRIMARY KEY, order_id, cents, key UNIQUE)")

    def charge(self, order: str, cents: int, key: str | None) -> str:
        """The receipt; for a key that it has seen before, that of the charge which it made then."""
        with closing(sqlite3.connect(self._path)) as db, db:
            db.execute(
                "INSERT INTO charges (order_id, cents, key) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                [order, cents, key],
            )
            (number,) = db.execute("SELECT max(number) FROM charges WHERE key IS ?", [key]).fetchone()
        return f"receipt {number}"

    def statement(self, order: str) -> str:
        """What the customer will find on hers."""
        with closing(sqlite3.connect(self._path)) as db:
            found = db.execute("SELECT cents FROM charges WHERE order_id = ?", [order]).fetchall()
        return " + ".join(f"{cents / 100:.2f}" for (cents,) in found)


# The process ----------------------------------------------------------------------------------------------------------


@activity.defn
def charge_carelessly(order: str) -> str:
    return charge(order, None)


@activity.defn
def charge_with_key(order: str) -> str:
    return charge(order, activity.info().idempotency_key)  # the same for every attempt of this step


def charge(order: str, key: str | None) -> str:
    receipt = Bank().charge(order, PRICE_CENTS, key)
    if activity.info().attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)  # it is done; from this process the ledger will never hear of it
    return receipt


@workflow.defn
async def pay_carelessly(order: str) -> str:
    return await charge_carelessly(order)


@workflow.defn
async def pay_with_key(order: str) -> str:
    return await charge_with_key(order)


WORKFLOWS = [pay_carelessly, pay_with_key]
ACTIVITIES = [charge_carelessly, charge_with_key]


# The lab --------------------------------------------------------------------------------------------------------------


async def main(folder: Path) -> None:
    url = f"sqlite:///{folder / 'ledger.db'}"
    os.environ[BANK_VARIABLE] = str(folder / "bank.db")
    print("Without an idempotency key:")
    await lab(url, pay_carelessly, "order-1")
    print("With one:")
    await lab(url, pay_with_key, "order-2")


async def lab(url: str, process: Callable[[str], Any], order: str) -> None:
    async with connect(url) as client:
        handle = await client.start_workflow(process, order, id=order)
        first = await asyncio.create_subprocess_exec(sys.executable, "-m", "examples.labs.crash", url)
        died_of = signal.Signals(-await first.wait())
        print(f"  a worker charges the card and dies of {died_of.name}")
        await tell(handle, order)
        async with Worker(client, workflows=WORKFLOWS, activities=ACTIVITIES):
            print(f"  another one takes over, charges it again and gets {await handle.result()}")
            await tell(handle, order)


async def tell(handle: WorkflowHandle[Any], order: str) -> None:
    """What either side now believes."""
    last = (await handle.history()).events[-1]
    print(f"      the ledger's last word: {last.type:<18} the statement: {Bank().statement(order)}")


async def work(url: str) -> None:
    """A worker process, until it is killed. Its lease is short, so that it soon counts as dead."""
    lease = timedelta(milliseconds=300)
    async with connect(url) as client:
        await Worker(client, workflows=WORKFLOWS, activities=ACTIVITIES, lease=lease).run()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(work(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(main(Path(folder)))
