"""One repeat of one workload, in a process of its own; started by `benchmarks.parent`, tells it all as JSON lines.

    python -m benchmarks.child DIRECTORY REQUEST

REQUEST is a `Request` as JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import cProfile
import pstats
import sys
import traceback
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, Self

import msgspec

from benchmarks.bench import Bench
from benchmarks.ground import Ground, Server, prepared
from benchmarks.results import Failed, Message, Said, Sample
from benchmarks.workloads import WORKLOADS


class Request(msgspec.Struct, frozen=True):
    """server: where the ledgers lie; None: in files. look: "time" measures, "calls" counts calls into
    `values["calls"]`, "profile" leaves `profile.pstats` in the directory."""

    workload: str
    quick: bool
    first: bool
    patience_s: float
    look: Literal["time", "calls", "profile"] = "time"
    server: Server | None = None


class CallCounter(contextlib.AbstractContextManager["CallCounter"]):
    """Counts the calls of this thread, of Python and of C functions; a coroutine that goes on counts as one."""

    def __init__(self) -> None:
        self.calls = 0

    def __enter__(self) -> Self:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, _frame: object, event: str, _argument: object) -> None:
        if event in ("call", "c_call"):
            self.calls += 1


def main(directory: Path, request: Request) -> None:
    with prepared(request.server, directory) as ground:
        _measure(directory, request, ground)


def _measure(directory: Path, request: Request, ground: Ground) -> None:
    counter, profile = CallCounter(), cProfile.Profile()
    lenses: dict[str, AbstractContextManager[Any]] = {
        "time": contextlib.nullcontext(),
        "calls": counter,
        "profile": profile,
    }
    bench = Bench(
        directory,
        ground,
        quick=request.quick,
        first=request.first,
        patience_s=request.patience_s,
        lens=lenses[request.look],
        # A slow commit moves to a thread, at the cost of some calls: without the disk the count is the same every time.
        durability="process" if request.look == "calls" else "power",
        say=lambda text: _tell(Said(text)),
    )
    try:
        values = asyncio.run(WORKLOADS[request.workload].measure(bench))
    except Exception:  # noqa: BLE001 - whatever it is, the parent reports it
        _tell(Failed(traceback.format_exc()))
        return
    if request.look == "calls":
        values = {"calls": counter.calls}
    if request.look == "profile":
        pstats.Stats(profile).dump_stats(directory / "profile.pstats")
    counts = (bench.runs, bench.events)
    _tell(Sample(values, bench.steps, bench.commit_ms, bench.fsync_ms, bench.other_cores, *counts))


def _tell(message: Message) -> None:
    print(msgspec.json.encode(message).decode(), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), msgspec.json.decode(sys.argv[2], type=Request))
