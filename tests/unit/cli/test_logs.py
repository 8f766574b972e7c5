from __future__ import annotations

import json
import logging
import re
import sys
from typing import Any

from pledger.cli.logs import _JsonLines, _Lines


def record(message: str, **fields: Any) -> logging.LogRecord:
    made = logging.LogRecord("pledger.activity", fields.pop("level", logging.INFO), "", 0, message, (), None)
    vars(made).update(fields)
    return made


def test_a_line_says_when_how_bad_what_and_about_which_step() -> None:
    line = _Lines(colours=False).format(
        record("charged", workflow_id="order-7421", run_id="01J9X", activity="charge_card", attempt=2)
    )
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3} INFO    charged  \[order-7421 charge_card attempt 2\]", line)


def test_a_line_of_something_else_is_bare() -> None:
    assert _Lines(colours=False).format(record("ready")).endswith("INFO    ready")


def test_a_traceback_follows_its_line() -> None:
    try:
        raise ValueError("no")
    except ValueError:
        failed = record("it broke", level=logging.ERROR)
        failed.exc_info = sys.exc_info()
    lines = _Lines(colours=False).format(failed).splitlines()
    assert lines[0].endswith("ERROR   it broke")
    assert lines[-1] == "ValueError: no"


def test_only_what_is_bad_is_coloured_and_only_on_a_terminal() -> None:
    warning = record("slow", level=logging.WARNING)
    assert _Lines(colours=True).format(warning).startswith("\x1b[33m")
    assert "\x1b" not in _Lines(colours=True).format(record("fine"))
    assert "\x1b" not in _Lines(colours=False).format(warning)


def test_a_message_cannot_steer_the_terminal() -> None:
    assert "\\x1b[2J" in _Lines(colours=False).format(record("\x1b[2J"))


def test_json_lines_hold_one_object_each() -> None:
    line = _JsonLines().format(
        record("charged\ntwice", workflow_id="order-7421", attempt=2, secret="not a field of ours")
    )
    assert "\n" not in line
    document = json.loads(line)
    assert document.pop("time").endswith("+00:00")
    assert document == {
        "level": "INFO",
        "logger": "pledger.activity",
        "message": "charged\ntwice",
        "workflow_id": "order-7421",
        "attempt": 2,
    }
