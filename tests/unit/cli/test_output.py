from __future__ import annotations

import io
import json
import re
import sys

import pytest

from pledger import errors
from pledger.cli.output import Output, Styled

ID = "order-" + "7421-" * 30


def test_without_a_terminal_nothing_is_coloured_cut_or_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(as_json=False)
    assert output.width is None
    output.table(("WORKFLOW ID", "TOOK"), [(Styled(ID, "bold red"), "35 ms"), ("b", "1")], right=("TOOK",))
    output.lines(Styled("a line " * 100, "red"))
    written = capsys.readouterr().out
    head, first, second, line = written.splitlines()
    assert first == f"{ID}  35 ms"
    assert head.endswith("TOOK")
    assert second.endswith("    1")
    assert line == ("a line " * 100).rstrip()
    assert "\x1b" not in written


def test_markup_and_control_characters_are_shown_and_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(as_json=False)
    output.table(("ID",), [("[red]x[/red] :tada: \x1b[2J",)])
    output.lines("[bold]\x07")
    output.note("\x1b]0;title\x07")
    captured = capsys.readouterr()
    assert captured.out.splitlines() == ["ID", "[red]x[/red] :tada: \\x1b[2J", "[bold]\\x07"]
    assert captured.err == "\\x1b]0;title\\x07\n"


def test_a_table_without_headers_has_no_header_line(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=False).table((), [("run", "01J9X"), ("status", "running")])
    assert capsys.readouterr().out.splitlines() == ["run     01J9X", "status  running"]


def test_a_terminal_gets_its_width_and_whole_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    output = Output(as_json=False)
    assert output.width == 60
    assert output.line_chars_max == 60
    output.table(("ID", "WHY"), [("06H2HEB6Z809KVPJVWEV9BA69W", "words " * 20)])
    assert "\x1b[1m" in terminal.getvalue()
    lines = re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue()).splitlines()
    assert all(len(line) <= 60 for line in lines)
    assert lines[1].startswith("06H2HEB6Z809KVPJVWEV9BA69W  words")


def test_json_is_all_there_is_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(as_json=True)
    output.note("a remark")
    output.document({"id": 3544790567247868102})
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"id": 3544790567247868102}
    assert captured.err == ""


def test_an_error_is_told_once_with_what_caused_it(capsys: pytest.CaptureFixture[str]) -> None:
    error = errors.WorkflowFailedError("workflow 'a' failed: OrderRefused: order 7")
    error.__cause__ = errors.ApplicationError("order 7", type="OrderRefused")
    error.__cause__.__cause__ = errors.ApplicationError("no money", type="CardDeclined")
    Output(as_json=False).error(error)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "error: workflow 'a' failed: OrderRefused: order 7",
        "  caused by CardDeclined: no money",
    ]


def test_errors_in_json_mode_are_json(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(as_json=True)
    output.error(errors.WorkflowNotFoundError("no workflow 'nope'"))
    assert json.loads(capsys.readouterr().err) == {
        "error": {"type": "WorkflowNotFoundError", "message": "no workflow 'nope'", "exit_code": 3}
    }
    output.usage_error("Missing argument", "--help")
    assert json.loads(capsys.readouterr().err)["error"]["exit_code"] == 2
