"""Many processes with many threads on one file: `python -m tests.acceptance.contention` for a minute, with figures.

Each thread has a client of its own; two in a process have a worker. The clients start runs, send them their message
and wait for their end. What is acknowledged to one of them goes into a diary at once, and so does every error: there
must be none. Meanwhile copies of the ledger are taken.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import apsw

from pledger import Worker, activity, connect, workflow
from pledger.testing import replay
from tests.crashes.diary import Diary, of_kind, read

WORKERS_OF_EACH: Final = 2
LEDGER: Final = "ledger.db"


@activity.defn
async def pack(parcel: str) -> str:
    return f"packed {parcel}"


@activity.defn
def ship(parcel: str) -> str:
    return f"shipped {parcel}"


@workflow.defn
class Parcel:
    def __init__(self) -> None:
        self.address = ""

    @workflow.run
    async def run(self, parcel: str) -> list[str]:
        packed = await pack(parcel)
        await workflow.wait_condition(lambda: bool(self.address))
        return [packed, await ship(self.address)]

    @workflow.signal
    def send_to(self, address: str) -> None:
        self.address = address


# One process ----------------------------------------------------------------------------------------------------------


def run_process(folder: Path, number: int, threads: int, orders: int, seconds: float) -> None:
    """orders: of each client; seconds: in place of that, if not 0."""
    diary = Diary(folder)
    over = threading.Event()
    until_s = time.monotonic() + seconds

    def is_enough(done: int) -> bool:
        return time.monotonic() >= until_s if seconds else done >= orders

    def guarded(act: Callable[[], Any]) -> None:
        try:
            asyncio.run(act())
        except BaseException as error:  # noqa: BLE001 - whatever a user would see
            diary.write("error", f"{type(error).__name__}: {error}")

    workers = [threading.Thread(target=guarded, args=(lambda: _work(folder, over),)) for _ in range(WORKERS_OF_EACH)]
    clients = [
        threading.Thread(target=guarded, args=(lambda n=n: _order(folder, diary, f"{number}-{n}", is_enough),))
        for n in range(threads - WORKERS_OF_EACH)
    ]
    for thread in [*workers, *clients]:
        thread.start()
    for thread in clients:
        thread.join()
    # The workers of the others may be gone: these stay until all that was asked here is done, which it is now.
    over.set()
    for thread in workers:
        thread.join()


async def _work(folder: Path, over: threading.Event) -> None:
    async with connect(f"sqlite:///{folder}/{LEDGER}") as client, Worker(client, **CODE):
        await asyncio.to_thread(over.wait)


CODE: Final[dict[str, Any]] = {"workflows": [Parcel], "activities": [pack, ship], "lease": timedelta(seconds=60)}


async def _order(folder: Path, diary: Diary, name: str, is_enough: Callable[[int], bool]) -> None:
    done = 0
    async with connect(f"sqlite:///{folder}/{LEDGER}") as client:
        while not is_enough(done):
            parcel = f"{name}-{done}"
            handle = await client.start_workflow(Parcel, parcel, id=parcel)
            diary.write("started", parcel, handle.run_id)
            await handle.signal(Parcel.send_to, f"home of {parcel}", message_id="address")
            diary.write("sent", parcel)
            diary.write("result", parcel, await handle.result())
            done += 1


# What must hold -------------------------------------------------------------------------------------------------------


async def check(folder: Path) -> dict[str, int]:
    """Everything that was acknowledged is there, and nothing failed. Gives figures."""
    lines = read(folder)
    assert list(of_kind(lines, "error")) == []
    assert_whole(folder / LEDGER)
    results = dict(of_kind(lines, "result"))
    async with connect(f"sqlite:///{folder}/{LEDGER}") as client:
        runs = {run.workflow_id: run async for run in client.list()}
        assert {parcel: runs[parcel].run_id for parcel, _ in of_kind(lines, "started")} == dict(
            of_kind(lines, "started")
        )
        assert {parcel for [parcel] in of_kind(lines, "sent")} == results.keys() == runs.keys()
        for parcel, result in results.items():
            assert result == [f"packed {parcel}", f"shipped home of {parcel}"]
            assert await client.handle(parcel).result() == result
    return {"runs": len(runs), "acknowledged": len(lines)}


async def check_copy(copy: Path, *, finish: bool) -> int:
    """A copy is whole and all its runs replay; finish: they go on from there to their end. How many it has."""
    assert_whole(copy)
    async with connect(f"sqlite:///{copy}") as client:
        runs = [run async for run in client.list()]
        for run in runs:
            replay(await client.handle(run.workflow_id).history(), Parcel)
        if finish:
            await _bury(client)
            async with Worker(client, **CODE):
                for run in runs:
                    handle = client.handle(run.workflow_id, workflow=Parcel)
                    if run.status == "running":
                        await handle.signal(Parcel.send_to, f"home of {run.workflow_id}", message_id="address")
                    assert await handle.result() == [
                        f"packed {run.workflow_id}",
                        f"shipped home of {run.workflow_id}",
                    ]
    return len(runs)


async def _bury(client: Any) -> None:
    """Nobody waits for the leases in a copy here: their workers are of another ledger."""
    for session in await client.internals.store.read_sessions("default"):
        await client.internals.store.close_session(session.session_key)


def assert_whole(file: Path) -> None:
    database = apsw.Connection(str(file))
    try:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    finally:
        database.close()


# The whole of it ------------------------------------------------------------------------------------------------------


async def contend(
    folder: Path, processes: int, threads: int, *, orders: int = 0, seconds: float = 0.0
) -> dict[str, Any]:
    """Run the processes, take copies as long as they work, and check everything. Gives figures."""
    async with connect(f"sqlite:///{folder}/{LEDGER}") as client:
        command = [sys.executable, "-m", "tests.acceptance.contention", "--folder", str(folder)]
        command += ["--threads", str(threads), "--orders", str(orders), "--seconds", str(seconds), "--process"]
        began = [await asyncio.create_subprocess_exec(*command, str(n)) for n in range(processes)]
        ends = asyncio.gather(*(each.wait() for each in began))
        copies: list[Path] = []
        while not ends.done():
            copy = folder / f"copy-{len(copies)}.db"
            await client.back_up(copy)
            copies.append(copy)
            await asyncio.wait([ends], timeout=0.5 + seconds / 50)
        assert set(await ends) == {0}
    figures = await check(folder)
    sizes = [await check_copy(copy, finish=n in (1, len(copies) // 2)) for n, copy in enumerate(copies)]
    return {**figures, "processes": processes, "threads": threads, "copies": len(copies), "runs_in_copies": sizes}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.acceptance.contention")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--orders", type=int, default=0, help="of each client, in place of --seconds")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--process", type=int, help="be this one of the processes")
    parser.add_argument("--json", type=Path, help="the figures go to this file, too")
    asked = parser.parse_args()
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="pledger-contention-"))
    seconds = 0.0 if asked.orders else asked.seconds
    if asked.process is not None:
        run_process(folder, asked.process, asked.threads, asked.orders, seconds)
        return
    figures = asyncio.run(contend(folder, asked.processes, asked.threads, orders=asked.orders, seconds=seconds))
    report = json.dumps({"seconds": seconds, **figures})
    if asked.json is not None:
        asked.json.write_text(report + "\n", encoding="utf-8")
    sys.stdout.write(report + "\n")


if __name__ == "__main__":
    main()
