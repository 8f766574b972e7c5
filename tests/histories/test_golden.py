"""Histories that were recorded once replay for ever, on every Python: what old ledgers hold stays valid.

A failure here is a bug in the engine, never a reason to record anew. What a history holds stands beside it, NAME.txt.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from pledger.client import History
from pledger.errors import NondeterminismError
from pledger.history import events
from pledger.history.transition import Transition
from pledger.testing import replay
from tests.histories.cases import CASES, FOLDER, Case, replay_all
from tests.histories.record import tell
from tests.histories.workflows import before_change

ROOT = Path(__file__).parents[2]

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def test_every_file_has_its_case() -> None:
    found = {path.name for pattern in ("*.json", "*.txt") for path in FOLDER.glob(pattern)}
    assert found == {path.name for case in CASES for path in (case.json, case.text)}


@each_case
def test_it_replays(case: Case) -> None:
    assert replay(case.json, case.workflow) == len(case.read().events)


@each_case
def test_its_text_tells_what_is_in_it(case: Case) -> None:
    assert case.text.read_text(encoding="utf-8") == tell(case.read())


@each_case
def test_it_is_exported_as_it_was_read(case: Case) -> None:
    assert case.read().export() + b"\n" == case.json.read_bytes()


@each_case
def test_a_changed_command_is_found(case: Case) -> None:
    """Whichever command of the record the code does not ask for, replay says so."""
    replayed = [what for what, history in changed(case.read()) if replays(history, case)]
    assert not replayed


def test_the_change_that_the_patch_guards_is_found_without_it() -> None:
    case = next(each for each in CASES if each.name == "patch-new-side")
    with pytest.raises(NondeterminismError) as caught:
        replay(case.json, before_change)
    assert (caught.value.event_id, caught.value.recorded) == (4, "RecordPatch 'check-card'")


def changed(history: History) -> Iterator[tuple[str, History]]:
    """The history without one of its commands, or with another activity in its place: each way there is."""
    for number, transition in enumerate(history.transitions):
        for position, command in enumerate(transition.commands):
            before, after = transition.commands[:position], transition.commands[position + 1 :]
            yield f"{command} is missing", _with(history, number, (*before, *after))
            other = events.ScheduleActivity("another", b"[]", events.ActivityOptions())
            yield f"{command} is another", _with(history, number, (*before, other, *after))


def replays(history: History, case: Case) -> bool:
    try:
        replay(history, case.workflow)
    except NondeterminismError:
        return False
    return True


def _with(history: History, number: int, commands: tuple[events.Command, ...]) -> History:
    transitions: list[Transition] = list(history.transitions)
    transitions[number] = msgspec.structs.replace(transitions[number], commands=commands)
    return History(history.identity, tuple(transitions))


# Every Python that is here, this one with another order of hashes among them ------------------------------------------

PROBE = "import sys; assert sys.implementation.name == 'cpython'; import apsw, msgspec, pydantic"
#: What the library needs, and pydantic with what that needs.
NEEDED = {"apsw", "msgspec", "pydantic", "pydantic-core", "annotated-types", "typing-extensions", "typing-inspection"}
VARIED: list[dict[str, str]] = [
    {"PYTHONHASHSEED": "0"},
    {"PYTHONHASHSEED": "4711", "PYTHONASYNCIODEBUG": "1"},
    {"PYTHONHASHSEED": "random"},
]
REPLAY = "from tests.histories.cases import replay_all; print(sum(events for _, events in replay_all()))"


@pytest.mark.parametrize("minor", range(11, 15), ids=lambda minor: f"3.{minor}")
def test_they_replay_on_every_python(minor: int, record_property: Callable[[str, object], None]) -> None:
    """Whatever strings hash to there, and under asyncio's debug mode too."""
    python = python_of(minor)
    for varied in VARIED:
        replayed = run(python, minor, "-W", "error", "-c", REPLAY, **varied)
        assert replayed.returncode == 0, replayed.stderr
        assert int(replayed.stdout) == sum(count for _, count in replay_all())
    record_property("replayed on", f"3.{minor}")  # the root's conftest says which ones were found


def python_of(minor: int) -> str:
    """A Python of this version that has what the library needs: this one, one on the `PATH`, or an environment made of
    that. Skips the test where there is none."""
    if sys.version_info[:2] == (3, minor):
        return sys.executable
    found = shutil.which(f"python3.{minor}")
    if found is None or run(found, minor, "-c", "").returncode != 0:
        pytest.skip(f"there is no python3.{minor} here")
    if run(found, minor, "-c", PROBE).returncode == 0:
        return found
    locked = "".join(requirement for name, requirement in locked_requirements() if name in NEEDED)
    folder = ROOT / "build" / "pythons" / f"3.{minor}-{hashlib.blake2b(locked.encode(), digest_size=6).hexdigest()}"
    python = str(folder / "bin" / "python")
    if not folder.exists():
        with tempfile.TemporaryDirectory() as scratch:
            requirements = Path(scratch, "requirements.txt")
            requirements.write_text(locked, encoding="utf-8")
            pip = ("-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "-r", str(requirements))
            made = run(found, minor, "-m", "venv", str(folder))
            if made.returncode == 0:
                made = run(python, minor, *pip)
        if made.returncode != 0:
            shutil.rmtree(folder, ignore_errors=True)
            pytest.skip(f"python3.{minor} has not got what it needs: {(made.stderr or made.stdout).strip()[-200:]}")
    return python


def locked_requirements() -> Iterator[tuple[str, str]]:
    """(name, its lines with version and hashes) of each package in the lock."""
    lock = (ROOT / "requirements" / "dev.txt").read_text(encoding="utf-8")
    for found in re.finditer(r"^([a-z0-9-]+)==.*\n(?:    --hash=.*\n)+", lock, re.MULTILINE):
        yield found.group(1), found.group()


def run(python: str, minor: int, *arguments: str, **varied: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "PYENV_VERSION": f"3.{minor}",  # a version manager's shim runs what this names, and nothing without it
        **varied,
    }
    return subprocess.run(
        [python, *arguments], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
