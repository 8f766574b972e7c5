"""docs/cli.md names every command, every field of a filter, and every exit code in the words of `pledger --help`."""

import re
from pathlib import Path

from pledger.cli.app import app
from pledger.cli.exits import MEANINGS
from pledger.engine.listing import FIELDS, parse

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")


def test_every_command_is_there() -> None:
    commands = [each.name or getattr(each.callback, "__name__", "") for each in app.registered_commands]
    assert re.findall(r"^\| `pledger (\w+)", PAGE, re.MULTILINE) == commands


def test_every_exit_code_is_there() -> None:
    found = re.findall(r"^\| (\d+) \| (.+) \|$", PAGE, re.MULTILINE)
    assert [(int(code), meaning) for code, meaning in found] == [(int(c), m) for c, m in MEANINGS.items()]


def test_the_filters_parse() -> None:
    block = re.search(r"```text\n(.*?)```", PAGE, re.DOTALL)
    assert block
    assert all(parse(line) for line in block[1].splitlines())


def test_every_field_of_a_filter_is_there_with_its_other_name() -> None:
    fields = re.search(r"^Fields: (.*?)\. Operators:", PAGE, re.DOTALL | re.MULTILINE)
    assert fields
    assert re.findall(r"`(\w+)`", fields[1]) == list(FIELDS)
