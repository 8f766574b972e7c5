"""One task of one engine, in a process and on a directory of its own; runs in the environment of the engine.

    python -m benchmarks.peers.child REQUEST

REQUEST is a `Request` as JSON. What it says goes to standard output as JSON lines, each with one key: `said` what it is
at, `values` what it found, `failed` why not. All else that is printed goes to standard error.
"""

import asyncio
import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Final, TypeAlias

from benchmarks.figures import Values
from benchmarks.peers import fleet
from benchmarks.peers.asked import Request
from benchmarks.peers.rival import FleetRival, Rival, until
from benchmarks.peers.workloads import MEASURES, fall_asleep

#: Steps before those that are counted.
WARM_STEPS: Final = 20

Tell: TypeAlias = Callable[[str, object], None]


async def perform(request: Request, tell: Tell) -> None:
    adapter: type[Rival] = importlib.import_module(request.adapter).Adapter
    rival = adapter(request.place)
    tell("said", "starting")
    await (_as_fleet(rival).serve() if request.task == "serve" else rival.up())
    try:
        tell("said", "up")
        tell("values", await _values(rival, request, tell))
    finally:
        await rival.down()


async def _values(rival: Rival, request: Request, tell: Tell) -> Values:
    match request.task:
        case "begin":
            return await _begin(rival, request, tell)
        case "finish":
            return await _finish(rival, request)
        case "first":
            await rival.run_sequence(1)
            return {}
        case "steps":
            return await _steps(rival, request)
        case "serve":
            # Until whoever asked for it has gone, or had enough of it.
            await asyncio.to_thread(sys.stdin.read)
            return {}
        case workload if workload in fleet.MEASURES:
            tell("said", "measuring")
            return await fleet.MEASURES[workload](_as_fleet(rival), request.size, request.in_flight)
        case workload:
            tell("said", "measuring")
            return await MEASURES[workload](rival, request.size, request.in_flight)


def _as_fleet(rival: Rival) -> FleetRival:
    if not isinstance(rival, FleetRival):
        raise TypeError("there is no program for it in this engine's adapter")
    return rival


async def _begin(rival: Rival, request: Request, tell: Tell) -> Values:
    """Have sleepers asleep, say so, and wait to be killed."""
    started = time.monotonic()
    await fall_asleep(rival, request.size, request.in_flight, request.sleep_s)
    # So that the last of them is durable as asleep.
    await asyncio.sleep(rival.settle_s)
    taken_s = time.monotonic() - started
    if taken_s >= request.sleep_s:
        raise RuntimeError(f"it took {taken_s:.0f} s until all were asleep, longer than the first of them sleeps")
    tell("values", {"asleep_s": taken_s})
    await asyncio.Event().wait()
    return {}


async def _finish(rival: Rival, request: Request) -> Values:
    """Until all sleepers have ended. First by what their steps say, which costs nothing; then by the engine."""

    async def have_run() -> bool:
        return len(await rival.step_times()) >= 2 * request.size

    async def have_ended() -> bool:
        return await rival.open_sleepers() == 0

    await until(have_run, 0.02)
    await until(have_ended, 0.1)
    return {}


async def _steps(rival: Rival, request: Request) -> Values:
    await rival.run_sequence(WARM_STEPS)
    before = await rival.counters()
    await rival.run_sequence(request.size)
    after = await rival.counters()
    return {key: (after[key] - before[key]) / request.size for key in after}


def main(request: Request) -> None:
    # What libraries and servers print must not get among what is told.
    messages = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def tell(key: str, value: object) -> None:
        messages.write(json.dumps({key: value}) + "\n")
        messages.flush()

    try:
        asyncio.run(perform(request, tell))
    except BaseException as error:
        traceback.print_exc()
        tell("failed", _in_a_line(error))
        raise SystemExit(1) from error


def _in_a_line(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = f"{type(error).__name__}: {error}".strip()
    return text.splitlines()[0][:300]


if __name__ == "__main__":
    main(Request.from_json(sys.argv[1]))
