"""The same code asks for the same: whatever is cached, whatever strings hash to, and under asyncio's debug mode."""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pledger.client import History
from tests.histories.cases import CASES, Case
from tests.histories.record import record

ROOT = Path(__file__).parents[2]
PROGRAM = "from tests.histories.test_determinism import digest_of_all; print(digest_of_all())"


def asked(history: History) -> list[tuple[int, str, object, object]]:
    """What happened and what the code asked for, without times: coming back to memory takes some."""
    return [
        (event.event_id, event.type, event.attributes.get("activity_type"), event.attributes.get("args"))
        for event in history.events
    ]


@pytest.mark.parametrize("case", [case for case in CASES if not case.has_company], ids=lambda case: case.name)
def test_the_cache_changes_no_history(case: Case) -> None:
    """Without a cache every transition is made by a machine that was replayed for it."""
    kept = History.read(record(case))
    evicted = History.read(record(case, cached=False))
    assert asked(evicted) == asked(kept)


@functools.cache
def digest_of_all() -> str:
    """Of every case, recorded anew, cached and not."""
    found = hashlib.blake2b(digest_size=16)
    for case in CASES:
        found.update(record(case))
        found.update(record(case, cached=False))
    return found.hexdigest()


@pytest.mark.parametrize(
    "varied",
    [
        {"PYTHONHASHSEED": "0"},
        {"PYTHONHASHSEED": "1"},
        {"PYTHONHASHSEED": "random"},
        {"PYTHONHASHSEED": "4711", "PYTHONASYNCIODEBUG": "1"},
    ],
    ids=lambda varied: ", ".join(f"{name}={value}" for name, value in varied.items()),
)
def test_another_process_records_the_same_byte_for_byte(varied: dict[str, str]) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), **varied}
    program = [sys.executable, "-W", "error", "-c", PROGRAM]
    done = subprocess.run(program, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == digest_of_all()
