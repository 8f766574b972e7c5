"""RPL-05: what the standard library keeps in sets must not depend on object addresses or hash seeds."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from pledger import workflow
from pledger.errors import ApplicationError
from pledger.history import view
from pledger.machine.context import RunContext
from tests.unit.machine import fan_out
from tests.unit.machine.harness import SEED, DrivenRun, scheduled

Drive = Callable[..., DrivenRun]
ROOT = Path(__file__).parents[3]
PROCESSES = 50


def finish(run: DrivenRun) -> None:
    """Complete what is pending, the last asked first, until nothing is."""
    while run.machine.closed is None:
        newest = max(run.machine.pending_activities())
        (name,) = scheduled([run.events[newest - 1]])
        run.complete(newest, name[1])


def started(drive: Drive, name: str) -> DrivenRun:
    run = drive(fan_out.WORKFLOWS[name])
    run.start()
    if name == "aborts_a_group":
        run.fail(2 + 7, ApplicationError("declined"))
    return run


def test_RPL_05_histories_replay_command_for_command_in_new_processes(drive: Drive, tmp_path: Path) -> None:
    """Fifty of them, each with another hash seed and with 10,000 objects allocated first."""
    histories, expected = {}, []
    for name in fan_out.WORKFLOWS:
        run = started(drive, name)
        finish(run)
        histories[name] = msgspec.Raw(view.export(run.transitions))
        expected += [name, *fan_out.asked(run)]
    exported = msgspec.json.encode(histories)
    # Compiled once for all of them, whatever the environment says of that.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path)}

    def replayed(seed: int) -> list[str]:
        answer = subprocess.run(
            [sys.executable, "-m", "tests.unit.machine.fan_out"],
            cwd=ROOT,
            env={**environment, "PYTHONHASHSEED": str(seed)},
            input=exported,
            capture_output=True,
            check=True,
        )
        return answer.stdout.decode().splitlines()

    with ThreadPoolExecutor(max_workers=os.cpu_count() or 2) as pool:
        for seed, answer in enumerate(pool.map(replayed, range(50))):
            assert answer == expected, f"with PYTHONHASHSEED={seed}"


def test_RPL_05_commands_come_in_list_order(drive: Drive) -> None:
    run = started(drive, "waits_on_sets")
    assert scheduled(run.events) == [("step", "a"), ("step", "b"), ("step", "c")]
    finish(run)
    firsts = [name for _, name in scheduled(run.events) if len(name) == 1]
    assert firsts == [*"abcxyzdef"]


def test_RPL_05_every_task_of_an_aborted_group_is_told(drive: Drive) -> None:
    run = started(drive, "aborts_a_group")
    finish(run)
    cleaned = [name for _, name in scheduled(run.events) if name.startswith("clean up")]
    assert sorted(cleaned) == [f"clean up {n:02}" for n in range(20) if n != 7]


@pytest.fixture
def loops(drive: Drive) -> list[RunContext]:
    """Two runs of one seed, and one of another."""

    async def idle() -> None: ...

    definition = workflow.defn(idle)
    runs = [drive(definition, seed=seed) for seed in (SEED, SEED, SEED[::-1])]
    for run in runs:
        run.start()
    return [run.machine.context for run in runs]


def test_hashes_follow_from_the_seed_and_the_order_of_making(loops: list[RunContext]) -> None:
    first, same, other = ([hash(context.loop.create_future()) for _ in range(100)] for context in loops)
    assert first == same
    assert len(set(first)) == 100
    assert set(first).isdisjoint(other)


def test_equality_is_identity_all_the_same(loops: list[RunContext]) -> None:
    first, same = (context.loop.create_future() for context in loops[:2])
    assert hash(first) == hash(same)
    assert first != same
    assert len({first, same}) == 2


def test_futures_of_other_loops_are_left_alone() -> None:
    async def gathers() -> bool:
        gathered = asyncio.gather(asyncio.sleep(0), asyncio.sleep(0))
        known = hash(gathered) == object.__hash__(gathered)
        await gathered
        return known

    assert asyncio.run(gathers())
