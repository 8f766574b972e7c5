"""W8: what a program pays for having Pledger: import, start-up, installation."""

import importlib.metadata
import shutil
import statistics
import subprocess
import sys
import time
import venv
from pathlib import Path
from typing import Final

from benchmarks.bench import Bench, BenchmarkError
from benchmarks.figures import Figure, Values, Workload
from benchmarks.machine import ROOT
from pledger import connect

STARTS: Final = 10

#: What only the command line needs.
CLI_MODULES: Final = ("click", "rich", "typer")


async def measure(bench: Bench) -> Values:
    _check_imports()
    # A first start that does not count: it compiles what is not yet compiled.
    _first_workflow_s(bench, STARTS)
    values = {}
    async with bench.measured(STARTS):
        # In turns, so that what disturbs one disturbs the other.
        pairs = [(_process_s("pass"), _process_s("import pledger")) for _ in range(STARTS)]
        values["import_s"] = statistics.median(imported for _, imported in pairs) - statistics.median(
            bare for bare, _ in pairs
        )
        values["first_s"] = statistics.median(_first_workflow_s(bench, number) for number in range(STARTS))
    for number in range(STARTS + 1):
        async with connect(_url(bench, number)) as client:
            await bench.verify(client, "completed")
    return values | (_installed(bench) if bench.first else {})


def _check_imports() -> None:
    code = f"import sys, pledger; print(*(name for name in {CLI_MODULES} if name in sys.modules))"
    found = _run([sys.executable, "-c", code]).split()
    if found:
        raise BenchmarkError(f"import pledger imports {', '.join(found)}, which only the command line needs")


def _process_s(code: str) -> float:
    started = time.perf_counter()
    _run([sys.executable, "-c", code])
    return time.perf_counter() - started


def _first_workflow_s(bench: Bench, number: int) -> float:
    """From the start of the process, on a new ledger, to what it says after the first result."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "benchmarks.first", _url(bench, number)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own module
        assert process.stdout is not None
        process.stdout.readline()
        seconds = time.perf_counter() - started
    if process.returncode:
        raise BenchmarkError(f"the first workflow failed: exit code {process.returncode}")
    return seconds


def _url(bench: Bench, number: int) -> str:
    return f"sqlite:///{bench.directory.absolute()}/first-{number}.db"


def _installed(bench: Bench) -> Values:
    """Size of a new environment with the wheel of this checkout and all it needs; empty where none can be made (no
    network). Without byte code, which installers may or may not write."""
    bench.say("installing into a new environment")
    place = bench.directory / "environment"
    _run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place / "wheel")])
    [wheel] = (place / "wheel").glob("*.whl")
    uv = shutil.which("uv")
    venv.create(place / "venv", with_pip=uv is None)
    python = str(place / "venv/bin/python")
    installer = [uv, "pip", "install", "--python", python] if uv else [python, "-m", "pip", "install", "--no-compile"]
    try:
        _run([*installer, "--quiet", str(wheel)])
    except BenchmarkError as error:
        bench.say(f"could not install: {error}")
        return {}
    [packages] = (place / "venv").glob("lib/python*/site-packages")
    sizes = dict(map(_size, importlib.metadata.distributions(path=[str(packages)])))
    sizes.pop("pip", None)
    sizes.pop("setuptools", None)
    return {"installed_mb": sum(sizes.values()) / 1e6, "distributions": len(sizes)}


def _size(distribution: importlib.metadata.Distribution) -> tuple[str, int]:
    """(name, bytes)."""
    files = (Path(str(each.locate())) for each in distribution.files or ())
    sizes = (file.stat().st_size for file in files if file.exists() and file.suffix != ".pyc")
    return distribution.metadata["Name"].lower(), sum(sizes)


def _run(command: list[str]) -> str:
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603 - commands of this module
    if ended.returncode:
        raise BenchmarkError(f"{' '.join(command)} ended with {ended.returncode}: {ended.stderr.strip()}")
    return ended.stdout


WORKLOAD: Final = Workload(
    "W8",
    "import; process start to first workflow done; size",
    (
        Figure("import_s", "import, beyond a bare interpreter", "s", target=0.1),
        Figure("first_s", "process start to first workflow done", "s", target=0.25),
        Figure("installed_mb", "core and CLI installed", "MB", target=25),
        Figure("distributions", "distributions installed", "", target=12),
    ),
    measure,
    stores=frozenset({"sqlite"}),
)
