"""An environment for each engine, made when it is first asked for, and kept while its requirements stay the same."""

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.machine import ROOT
from benchmarks.peers.catalogue import Peer

#: For one command of an installer.
TIMEOUT_S: Final = 900

#: Told by the environment's own interpreter. Without byte code, which installers may or may not write.
_DISTRIBUTIONS: Final = """
import importlib.metadata, json
found = {}
for each in importlib.metadata.distributions():
    files = (each.locate_file(file) for file in each.files or ())
    size = sum(file.stat().st_size for file in files if file.suffix != ".pyc" and file.exists())
    found[each.metadata["Name"].lower()] = (each.version, size)
print(json.dumps(found))
"""

#: What every new environment has.
_GIVEN: Final = ("pip", "setuptools", "wheel")


class InstallError(Exception):
    """The engine cannot be had here. The message says why, in a line."""


@dataclass(frozen=True, slots=True)
class Installed:
    """versions: as told, by distribution or npm package. megabytes: with npm packages, without byte code."""

    python: Path
    python_version: str
    versions: dict[str, str]
    distributions: int
    megabytes: float


def install(peer: Peer, place: Path, say: Callable[[str], None]) -> Installed:
    """The engine's environment below `place`. Raises InstallError."""
    folder = place / peer.environment
    # This checkout changes; whatever else is asked for has a version.
    wanted = json.dumps([peer.requirements, peer.npm, peer.python])
    stamp = folder / "installed.json"
    python = folder / "venv/bin/python"
    if "." in peer.requirements or not stamp.exists() or stamp.read_text() != wanted:
        stamp.unlink(missing_ok=True)
        say(f"installing {' '.join((*peer.requirements, *peer.npm))}")
        if not python.exists() or _version(str(python)) < peer.python:
            _run([find_python(peer.python), "-m", "venv", "--clear", str(folder / "venv")])
        _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *peer.requirements])
        if peer.npm:
            _install_npm(peer.npm, folder / "npm")
        stamp.write_text(wanted)
    return _inspect(peer, folder, python)


def find_python(oldest: tuple[int, int]) -> str:
    """An interpreter of that version or newer: our own if it will do. Raises InstallError."""
    for candidate in _pythons():
        if _version(candidate) >= oldest:
            return candidate
    raise InstallError(f"needs Python {oldest[0]}.{oldest[1]} or newer, and none was found")


def _pythons() -> Iterator[str]:
    own = Path(sys.base_prefix) / f"bin/python{sys.version_info[0]}.{sys.version_info[1]}"
    yield str(own) if own.exists() else sys.executable
    for minor in (13, 12, 14):
        name = f"python3.{minor}"
        if found := shutil.which(name):
            yield found
        # Version managers have interpreters that are on no path.
        for folder in (".pyenv/versions", ".local/share/uv/python"):
            yield from map(str, sorted((Path.home() / folder).glob(f"*/bin/{name}")))


@functools.cache
def _version(python: str) -> tuple[int, int]:
    """(0, 0) when it does not run, as a version manager's shim may not."""
    command = [python, "-c", "import sys; print(*sys.version_info[:2])"]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)  # noqa: S603 - an interpreter
        major, minor = map(int, ended.stdout.split())
    except (OSError, ValueError, subprocess.SubprocessError):
        return (0, 0)
    return (major, minor)


def _install_npm(packages: tuple[str, ...], folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise InstallError(f"{', '.join(packages)} comes from npm, which is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    _run([npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--ignore-scripts", *packages])


def _run(command: list[str]) -> str:
    try:
        ended = subprocess.run(  # noqa: S603 - commands of this module
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise InstallError(f"{Path(command[0]).name} took longer than {TIMEOUT_S} s") from None
    if ended.returncode:
        lines = [line.strip() for line in ended.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if "error" in line.lower()] or lines or ["no message"]
        raise InstallError(f"{Path(command[0]).name} ended with {ended.returncode}: {errors[-1][:200]}")
    return ended.stdout


def _inspect(peer: Peer, folder: Path, python: Path) -> Installed:
    found: dict[str, tuple[str, int]] = json.loads(_run([str(python), "-c", _DISTRIBUTIONS]))
    sizes = {name: size for name, (_, size) in found.items() if name not in _GIVEN}
    versions = {name: found[name][0] for name in peer.versions}
    for package in peer.npm:
        name, _, version = package.rpartition("@")
        versions[name] = version
    npm_files = (Path(root) / name for root, _, names in os.walk(folder / "npm") for name in names)
    size = sum(sizes.values()) + sum(file.lstat().st_size for file in npm_files)
    version = ".".join(map(str, _version(str(python))))
    return Installed(python, version, versions, len(sizes), size / 1e6)
