"""Real processes on real files: killed at every commit, and in each other's way."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from benchmarks.machine import ROOT
from proof.results import Real, Violation

T = TypeVar("T")


class _Kills(msgspec.Struct):
    """What the sweep writes down, as far as it is told here."""

    kills: int
    second: int
    lives: int
    cases: dict[str, int]
    failed: str


class _Contention(msgspec.Struct):
    processes: int
    threads: int
    runs: int
    copies: int


def kill(kills: int, done: Callable[[int], None]) -> tuple[list[Real], list[Violation]]:
    """kills: go on until so many are reached; each workflow is killed at each of its commits in any case."""
    module, options = "tests.crashes", ["--kills", str(kills)]
    failed, found = _run(module, options, _Kills)
    done(1)
    if found is None or found.failed:
        return [], [_violation(module, options, failed if found is None else found.failed)]
    figures = {
        "kills": found.kills,
        "of them in a recovery": found.second,
        "lives of processes": found.lives,
        "workflows": len(found.cases),
    }
    return [Real("SIGKILL before and after every commit", figures)], []


def contend(seconds: int, done: Callable[[int], None]) -> tuple[list[Real], list[Violation]]:
    module, options = "tests.acceptance.contention", ["--seconds", str(seconds)]
    failed, found = _run(module, options, _Contention)
    done(1)
    if found is None:
        return [], [_violation(module, options, failed)]
    figures = {
        "seconds": seconds,
        "processes": found.processes,
        "threads in each": found.threads,
        "runs": found.runs,
        "copies taken, each whole": found.copies,
    }
    return [Real("contention on one file", figures)], []


def _run(module: str, options: list[str], kind: type[T]) -> tuple[str, T | None]:
    """What it wrote to stderr, and its figures if it wrote any."""
    with tempfile.TemporaryDirectory(prefix="pledger-proof-") as folder:
        file = Path(folder, "figures.json")
        command = [sys.executable, "-m", module, *options, "--json", str(file)]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603 - ours
        found = msgspec.json.decode(file.read_bytes(), type=kind) if file.exists() else None
    return ended.stderr.strip(), found


def _violation(module: str, options: list[str], failed: str) -> Violation:
    return Violation(f"{module}: {failed[-1000:]}", f".venv/bin/python -m {module} {' '.join(options)}")
