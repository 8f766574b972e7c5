"""A program that meets its fate at a chosen commit: `python -m tests.acceptance.mortal [before|after|stop N]`.

It works on the ledger in the current folder, asks for one order, sends it its message and waits for its end. Run again,
it goes on. before, after: it dies by SIGKILL just before or just after its Nth COMMIT; stop: it stops just after it, as
by SIGSTOP. What the outside world saw and what was acknowledged to the client is in files of their own, a line at a
time: no kill takes back what was written.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

from pledger import Client, RetryPolicy, Worker, activity, workflow
from pledger.engine.connection import Connection
from pledger.errors import ActivityError
from pledger.store.sqlite import open_sqlite

LEASE = timedelta(milliseconds=250)
MANY = RetryPolicy(maximum_attempts=0, initial_interval=timedelta(milliseconds=10))


def write(file: str, line: str) -> None:
    """One write of one line to a file opened for appending: whole, or not at all."""
    with Path(file).open("a", encoding="utf-8", buffering=1) as lines:
        lines.write(f"{line}\n")


def note_attempt() -> None:
    info = activity.info()
    write("attempts", f"{info.activity_type} {info.idempotency_key} {info.attempt}")


@activity.defn(retry_policy=MANY)
async def reserve(part: int) -> str:
    note_attempt()
    return f"reserved {part}"


@activity.defn(retry_policy=RetryPolicy(maximum_attempts=1))
async def charge(amount: int) -> str:
    note_attempt()
    return f"charged {amount}"


@activity.defn(retry_policy=MANY)
def book(courier: str) -> str:
    note_attempt()
    return f"booked {courier}"


@workflow.defn
class Order:
    """Every kind of step: parallel, at most once, in a thread, a timer, a message."""

    def __init__(self) -> None:
        self.dispatched = ""

    @workflow.run
    async def run(self, amount: int) -> list[str]:
        done = list(await asyncio.gather(reserve(1), reserve(2)))
        try:
            done.append(await charge(amount))
        except ActivityError as error:
            done.append(type(error.__cause__).__name__)
        await asyncio.sleep(0.02)
        await workflow.wait_condition(lambda: bool(self.dispatched))
        return [*done, await book(self.dispatched)]

    @workflow.signal
    def dispatch(self, courier: str) -> None:
        self.dispatched = courier


async def main(fate: str = "", number: int = 0) -> None:
    phase = "before" if fate == "before" else "after"
    end = signal.SIGSTOP if fate == "stop" else signal.SIGKILL

    def on_commit(reached: str, commit: int) -> None:
        if (reached, commit) == (phase, number):
            os.kill(os.getpid(), end)

    connection = Connection(open_sqlite("ledger.db", on_commit=on_commit))
    client = Client(connection)
    async with Worker(client, workflows=[Order], activities=[reserve, charge, book], lease=LEASE):
        handle = await client.start_workflow(Order, 42, id="order")
        write("acknowledged", f"start {handle.run_id}")
        await handle.signal(Order.dispatch, "bike", message_id="dispatch")
        write("acknowledged", "signal dispatch")
        write("acknowledged", f"result {await handle.result()}")
    await connection.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:2], *map(int, sys.argv[2:])))
