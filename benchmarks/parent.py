"""Starts the repeats, each in a process and a directory of its own, and collects what they found."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import msgspec

from benchmarks.child import Request
from benchmarks.ground import Server
from benchmarks.machine import ROOT
from benchmarks.results import Failed, Measured, Message, Said, Sample

Say: TypeAlias = Callable[[str], None]


def measure(
    workload: str, repeats: int, *, quick: bool, patience_s: float, place: Path, server: Server | None, say: Say
) -> Measured:
    """Repeat a workload until it is done or fails. place: the directory under which the ledgers are made, unless they
    are on a server."""
    measured = Measured(workload, [])
    for number in range(repeats):
        request = Request(workload, quick, number == 0, patience_s, server=server)
        with _directory(place) as directory:
            answer = _run(directory, request, lambda text, at=number + 1: say(f"{at} of {repeats}: {text}"))
        if isinstance(answer, Failed):
            measured.failure = answer.text
            break
        measured.samples.append(answer)
    return measured


def count_calls(workload: str, place: Path) -> float | Failed:
    """Function calls per step. In a quick run: the count does not depend on the number of steps."""
    with _directory(place) as directory:
        answer = _run(directory, Request(workload, quick=True, first=True, patience_s=0, look="calls"), _ignore)
    return answer if isinstance(answer, Failed) else answer.values["calls"] / answer.steps


def profile(workload: str, output: Path, *, quick: bool, place: Path, server: Server | None) -> Failed | None:
    """Write what `pstats` reads into the file `output`."""
    with _directory(place) as directory:
        answer = _run(
            directory, Request(workload, quick, first=False, patience_s=0, look="profile", server=server), _ignore
        )
        if isinstance(answer, Failed):
            return answer
        shutil.copyfile(directory / "profile.pstats", output)
    return None


def _run(directory: Path, request: Request, say: Say) -> Sample | Failed:
    command = [sys.executable, "-m", "benchmarks.child", str(directory), msgspec.json.encode(request).decode()]
    with subprocess.Popen(  # noqa: S603 - our own module
        command, cwd=ROOT, env=_environment(directory.parent), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            match msgspec.json.decode(line, type=Message):
                case Said(text):
                    say(text)
                case answer:
                    return answer
    return Failed(f"the process of {request.workload} ended with {process.returncode} and said nothing")


def _environment(place: Path) -> dict[str, str]:
    """With byte code kept, as everybody has it, also where the environment forbids that or the code is not writable:
    otherwise every start would compile all modules anew, and that would be what W6 and W8 measure."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str((place / "byte-code").absolute())}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


@contextmanager
def _directory(place: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ledger-", dir=place) as name:
        yield Path(name)


def _ignore(_text: str) -> None:
    pass
