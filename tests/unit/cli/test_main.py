"""One command from its words to its exit code, as far as that needs no ledger."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pledger import errors
from pledger.cli import main
from pledger.cli.exits import MEANINGS
from tests.commands import commands

COMMANDS = (
    "worker",
    "start",
    "list",
    "show",
    "history",
    "signal",
    "query",
    "update",
    "follow",
    "cancel",
    "terminate",
    "reset",
    "redrive",
    "pause",
    "resume",
    "paused",
    "queue list",
    "limit list",
    "limit set",
    "limit reset",
    "dependency list",
    "dependency show",
    "dependency pause",
    "dependency resume",
    "activity complete",
    "activity fail",
    "activity heartbeat",
    "activity cancelled",
    "token rotate",
    "replay",
    "check",
    "backup",
    "audit",
    "export",
    "prune",
    "doctor",
)


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("PLEDGER_URL", "PLEDGER_APP", "PLEDGER_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """A worker sends the log of its process to its own stderr; here that is closed at the end of the test."""
    root = logging.getLogger()
    level, handlers = root.level, [*root.handlers]
    yield
    root.setLevel(level)
    root.handlers[:] = handlers


def test_help_lists_every_command_and_every_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert main([]) == 0
    assert capsys.readouterr().out == shown
    for command in COMMANDS:
        assert f"\n  {command.partition(' ')[0]} " in shown
    for code, meaning in MEANINGS.items():
        assert f"{code:>5}  {meaning}\n" in shown
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_speaks_json_and_takes_a_ledger(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert "--json " in shown
    if command != "check":  # it reads source files, and no ledger
        assert "--url URL" in shown
        assert "--namespace NAME" in shown


def test_no_command_is_without_a_test() -> None:
    assert set(commands()) == set(COMMANDS)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("pledger ")


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["list"], 3, "there is no ledger at sqlite:///pledger.db"),
        (["doctor"], 3, "there is no ledger"),
        (["replay", "--all", "--app", "pledger.cli.code"], 2, "has no workflows and no activities"),
        (["show", "x", "--url", "sqlite://x"], 2, "names no store"),
        (["show", "x", "--url", "memory://"], 2, "lives within one process"),
        (["start", "fulfil", "--id", "x", "--url", "sqlite:///nosuch/a.db"], 2, "is not a directory"),
        (["start", "fulfil", "abc", "--id", "x"], 2, "A text carries its own quotes"),
        (["start", "fulfil", "--id", "x", "--nosuch"], 2, "There is no such option here"),
        (["start", "fulfil"], 2, "--id"),
        (["start", "fulfil", "--id", "x", "--timeout", "soon"], 2, "is no duration"),
        (["start", "fulfil", "--id", "x", "--id-reuse-policy", "never"], 2, "--id-reuse-policy"),
        (["list", "--limit", "0"], 2, "--limit"),
        (["strat"], 2, "start"),
        (["replay"], 2, "name one run or file"),
        (["replay", "order-1", "--all"], 2, "name one run or file"),
        (["replay", "order-1", "--filter", "status = 'running'"], 2, "--filter goes with --all"),
        (["replay", "order-1"], 2, "--app your_module"),
        (["worker"], 2, "MODULE[:ATTRIBUTE]"),
        (["worker", "nosuch"], 2, "there is no module 'nosuch'"),
    ],
)
def test_errors_are_clean_and_have_their_codes(
    arguments: list[str], code: int, told: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(arguments) == code
    plain = capsys.readouterr()
    assert plain.out == ""
    assert plain.err.startswith("error: ")
    assert told in plain.err
    assert "Traceback" not in plain.err

    assert main([*arguments, "--json"]) == code
    document = capsys.readouterr()
    assert document.out == ""
    error = json.loads(document.err)["error"]
    assert told in error["message"]
    assert error["exit_code"] == code
    assert [*tmp_path.iterdir()] == []


def test_a_bug_of_ours_shows_its_traceback_and_asks_for_a_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("nobody thought of this")

    monkeypatch.setattr("pledger.cli.listing.opened", broken)
    assert main(["list"]) == 70
    told = capsys.readouterr().err
    assert "Traceback" in told
    assert "KeyError: 'nobody thought of this'. Please report this" in told


def test_an_internal_error_is_one_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*_: object, **__: object) -> None:
        raise errors.InternalError("this cannot be")

    monkeypatch.setattr("pledger.cli.listing.opened", broken)
    assert main(["list"]) == 70
    assert "Traceback" in capsys.readouterr().err
