"""docs/cli.md names every command, every field of a filter, and every exit code in the words of `pledger --help`."""

import inspect
import re
from pathlib import Path

import typer

from pledger import Worker
from pledger.cli.app import app
from pledger.cli.exits import MEANINGS
from pledger.engine.port.filters import EVERY
from pledger.engine.search.meaning import FIELDS, Known, conditions, order
from pledger.engine.search.text import parse
from tests.commands import commands

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/cli.md").read_text(encoding="utf-8")


def test_every_command_is_there() -> None:
    assert re.findall(r"^\| `pledger ([a-z]+(?: [a-z]+)?)", PAGE, re.MULTILINE) == commands()


def test_no_page_names_a_command_that_is_not_there() -> None:
    known = {command.partition(" ")[0] for command in commands()}
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        named = set(re.findall(r"`pledger\s+([a-z]+)", page.read_text(encoding="utf-8")))
        assert named <= known, f"{page.relative_to(ROOT)} names {named - known}"


def test_every_exit_code_is_there() -> None:
    found = re.findall(r"^\| (\d+) \| (.+) \|$", PAGE, re.MULTILINE)
    assert [(int(code), meaning) for code, meaning in found] == [(int(c), m) for c, m in MEANINGS.items()]


def test_the_filters_parse() -> None:
    block = re.search(r"```text\n(.*?)```", PAGE, re.DOTALL)
    assert block
    known = Known({"amount": ["int"], "region": ["keyword"]}, 0, EVERY)
    for line in block[1].splitlines():
        written = parse(line)
        assert (conditions(written, known), order(written, known)) != (EVERY, ())


def test_every_field_of_a_filter_is_there() -> None:
    fields = re.search(r"^Fields: (.*?)\. Conditions:", PAGE, re.DOTALL | re.MULTILINE)
    assert fields
    assert re.findall(r"`(\w+)`", fields[1]) == list(FIELDS)


def test_every_option_of_a_worker_is_there_and_every_setting_of_one_is_an_option() -> None:
    section = PAGE.partition("## Options of `worker`")[2].partition("\n## ")[0]
    shared = {"--url", "--namespace", "--json"}
    parameters = typer.main.get_command(app).commands["worker"].params  # type: ignore[attr-defined]
    options = {name for each in parameters for name in each.opts if name.startswith("--")}
    assert set(re.findall(r"`(--[a-z-]+)`", section)) == options - shared
    settings = set(inspect.signature(Worker).parameters) - {"client", "workflows", "activities", "interceptors"}
    assert {f"--{name.replace('_', '-')}" for name in settings} <= options
