"""Every reference workflow in real processes on a real file, killed by SIGKILL at each commit, and in a part of the
recoveries once more. How many kills that were stands at the end of the test run."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crashes.cases import CRASHES

ROOT = Path(__file__).parents[2]
#: The share of the crash points whose recovery is killed too. `python -m tests.crashes` does it for all.
SECOND = 0.15
#: A case takes a second or two; a life that hangs is ended by its own virtual clock.
PATIENCE_S = 280
#: So many cases are killed before and after each commit, the others before one and after the next:
#: `python -m tests.crashes` does both for all.
BOTH = 24
#: Cases of one test: what a process imports, its children need not.
CHUNK = 3


def chunks() -> list[list[str]]:
    names = list(CRASHES)
    return [names[at : at + CHUNK] for at in range(0, len(names), CHUNK)]


@pytest.mark.parametrize("names", chunks(), ids=" ".join)
def test_killed_at_every_commit(names: list[str], record_property: Callable[[str, object], None]) -> None:
    command = [sys.executable, "-m", "tests.crashes", *names, "--second", str(SECOND)]
    if names[0] in list(CRASHES)[BOTH:]:
        command.append("--by-turns")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    # Of the commits there are not fewer than the lease's, the run's, and those of the way out.
    assert min(figures["cases"].values()) > (4 if "--by-turns" in command else 8)
    assert figures["kills"] == figures["points"] + figures["second"]
    record_property("killed", {"cases": len(names), "kills": figures["kills"], "second": figures["second"]})


@pytest.mark.parametrize(
    ("name", "plant", "told"),
    [
        ("selling", "apart", "steps in transactions write once"),
        ("paying", "unredacted", "no secret is in a file"),
    ],
)
def test_a_planted_bug_is_found(name: str, plant: str, told: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.crashes", name, "--plant", plant, "--folder", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode != 0
    assert told in done.stderr
    shutil.rmtree(tmp_path)
