"""How `pledger show` prints a run where there is no terminal: long values are cut, and the way to the whole is told."""

from __future__ import annotations

import json

import pytest

from pledger.cli import show
from pledger.cli.output import Output
from pledger.history import events
from tests.unit.cli.runs import BEGIN_MS, START, Run, schedule

LONG = b'"' + b"x" * 50_000 + b'"'
HINT = "… stands for the rest of a long value: pledger show order-7421 --json"


def shown(run: Run, capsys: pytest.CaptureFixture[str], **fields: object) -> list[str]:
    show.tell(Output(as_json=False), run.describe(9, **fields))  # type: ignore[arg-type]
    return capsys.readouterr().out.splitlines()


def with_long_values() -> Run:
    return Run().then(0, events.RunStarted("fulfil", b"[" + LONG + b"]", b"seed"), schedule())


def test_long_values_are_cut_and_the_way_to_the_whole_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    completed = events.ActivityCompleted(2, LONG, 1)
    lines = shown(with_long_values().then(1, completed, events.CompleteRun(LONG)), capsys)
    assert sum(map(len, lines)) < 6_000
    assert lines[-1] == HINT


def test_a_run_of_short_values_needs_no_such_hint(capsys: pytest.CaptureFixture[str]) -> None:
    """Nor does a pending attempt, whose mark means something else."""
    lines = shown(Run().then(0, START, schedule()), capsys)
    assert any("…" in line for line in lines)
    assert not any("--json" in line for line in lines)


def test_the_message_and_traceback_of_a_block_are_cut_too(capsys: pytest.CaptureFixture[str]) -> None:
    block = {"reason": "bug", "type": "ValueError", "message": "v" * 50_000, "at_ms": 0, "event_id": 2}
    block["traceback"] = "Traceback:\n" + "y" * 50_000
    lines = shown(Run().then(0, START), capsys, blocked=block)
    assert sum(map(len, lines)) < 6_000
    assert lines[-1] == HINT


def test_who_answers_for_every_wait_and_until_when(capsys: pytest.CaptureFixture[str]) -> None:
    """Or that there is nobody, and no end (DESIGN, promise 7)."""
    named = events.RunStarted("fulfil", b"[]", b"seed", "default", BEGIN_MS + 300_000, owner="fulfilment\x1b[2J")
    run = Run().then(0, named, schedule())
    lines = shown(run, capsys)
    assert [line.split(maxsplit=1)[1] for line in lines if line.startswith("owner ")] == ["fulfilment\\x1b[2J"]
    assert any(line.startswith("deadline ") and "(in 4 min 51 s)" in line for line in lines)
    show.tell(Output(as_json=True), run.describe(9))
    document = json.loads(capsys.readouterr().out)
    assert (document["owner"], document["deadline"]) == ("fulfilment\x1b[2J", "2026-11-29T18:45:00.000+00:00")
    assert {(each["owner"], each["deadline"]) for each in document["waits"]} == {
        ("fulfilment\x1b[2J", "2026-11-29T18:45:00.000+00:00")
    }

    lines = shown(Run().then(0, START, schedule()), capsys)
    assert [line.split() for line in lines if line.startswith(("owner ", "deadline "))] == [
        ["owner", "nobody", "is", "named"],
        ["deadline", "none"],
    ]
    lines = shown(Run().then(0, START, events.CompleteRun(b"1")), capsys)
    assert not [line for line in lines if line.startswith(("owner ", "deadline "))]


def test_in_json_every_value_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    show.tell(Output(as_json=True), with_long_values().describe(9))
    assert json.loads(capsys.readouterr().out)["input"] == [json.loads(LONG)]
