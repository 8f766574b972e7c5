"""Where words go: answers to stdout, everything else to stderr; strict JSON and nothing else where that is asked for.

A terminal gets colours and its own width. A pipe or a file gets neither: every line is as long as it is, so that an id
is never cut or wrapped and `grep` and `awk` work. What is printed cannot steer the reader's terminal: it all goes
through `words.printable`, and nothing in it is markup.

Rich is imported at the first table, and only here: a command that answers in JSON needs none of it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TextIO, TypeAlias

from pledger import errors
from pledger.cli import documents, words
from pledger.cli.exits import Exit
from pledger.history import failures

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

#: The width where there is no terminal: more than any line has.
_UNBOUNDED: Final = 1_000_000
#: Characters of a long payload or message where there is no terminal.
_LINE_ELSEWHERE: Final = 2_000
#: In a terminal: what a table's narrow columns take from its two wide ones, and the least that is worth showing.
_NARROW_COLUMNS: Final = 33
_CELL_MIN: Final = 20

STATUS_STYLES: Final = {
    "running": "cyan",
    "completed": "green",
    "compensated": "yellow",
    "failed": "red",
    "timed_out": "red",
    "terminated": "magenta",
    "cancelled": "yellow",
    "continued_as_new": "dim",
    "blocked": "bold red",
    "paused": "yellow",
}


class ReaderGoneError(Exception):
    """Nobody reads stdout any more (`pledger list | head`)."""


class Styled(NamedTuple):
    """Text with a style of Rich's, like "bold red"."""

    text: str
    style: str


Words: TypeAlias = str | Styled


class Output:
    """The two streams of one command. as_json: whether it was asked for JSON."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self._answers: Console | None = None

    # Answers ----------------------------------------------------------------------------------------------------------

    @property
    def width(self) -> int | None:
        """Columns of the terminal, or None where answers are not read on one."""
        return self._console().width if self._console().is_terminal else None

    @property
    def line_chars_max(self) -> int:
        """How much of a long value fits a line: a terminal's, or a very long one."""
        return self.width or _LINE_ELSEWHERE

    @property
    def cell_chars_max(self) -> int:
        """The same for one of a table's wide columns."""
        return max(_CELL_MIN, (self.width - _NARROW_COLUMNS) // 2) if self.width is not None else _LINE_ELSEWHERE

    def document(self, value: Any) -> None:
        """The answer as JSON; `documents` has its shapes."""
        self.raw(documents.to_json(value))

    def raw(self, line: str) -> None:
        """A line of the answer as it is, for what is JSON or made of it."""
        self._write(line + "\n")

    def lines(self, *lines: Words) -> None:
        """The answer, or a part of it, for people."""
        for line in lines:
            self._render(_text(line))

    def table(self, headers: Sequence[str], rows: Iterable[Sequence[Words]], *, right: Iterable[str] = ()) -> None:
        """A table. right: the headers of columns with numbers. Without any headers, a list of names and values."""
        from rich.table import Table  # noqa: PLC0415 - see the module

        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_header=bool(headers))
        for header in headers:
            table.add_column(header, justify="right" if header in right else "left", overflow="fold")
        for row in rows:
            table.add_row(*map(_text, row))
        self._render(table)

    def _render(self, renderable: RenderableType) -> None:
        console = self._console()
        if console.is_terminal:
            console.print(renderable)
            return
        with console.capture() as captured:
            console.print(renderable, soft_wrap=True)
        # A table pads its last column; in a file that is nothing but weight.
        self._write("".join(line.rstrip() + "\n" for line in captured.get().splitlines()))

    def _write(self, text: str) -> None:
        try:
            sys.stdout.write(text)
        except BrokenPipeError:
            # Not as the OSError that it is: Typer would make a failure of it.
            raise ReaderGoneError from None

    def _console(self) -> Console:
        if self._answers is None:
            self._answers = new_console(sys.stdout)
        return self._answers

    # Everything else --------------------------------------------------------------------------------------------------

    def note(self, text: str) -> None:
        """A remark for people. Nothing in JSON mode: there, stderr is for errors."""
        if not self.as_json:
            say(text, "dim")

    def error(self, error: errors.PledgerError) -> None:
        """What a command ended with, and what caused it."""
        if self.as_json:
            sys.stderr.write(documents.to_json(documents.error(error)) + "\n")
            return
        text = words.bounded(f"error: {error}", _LINE_ELSEWHERE)
        say(text, "red")
        if isinstance(error.__cause__, errors.FailureError):
            for line in words.cause_lines(failures.from_exception(error.__cause__), text, _LINE_ELSEWHERE):
                say(f"  caused by {line}", "red")

    def usage_error(self, message: str, hint: str) -> None:
        """A command line that cannot be read."""
        if self.as_json:
            document = {"error": {"type": "UsageError", "message": message, "exit_code": Exit.USAGE}}
            sys.stderr.write(documents.to_json(document) + "\n")
        else:
            say(f"error: {message}", "red")
            say(hint, "dim")


def say(text: str, style: str) -> None:
    """A line to stderr, coloured on a terminal."""
    if sys.stderr.isatty():
        new_console(sys.stderr).print(_text(Styled(text, style)))
    else:
        sys.stderr.write(words.printable(text) + "\n")


def new_console(stream: TextIO) -> Console:
    """Rich's console on a stream, as wide as its terminal or without bounds, and without anything clever."""
    from rich.console import Console  # noqa: PLC0415 - see the module

    console = Console(file=stream, highlight=False, markup=False, emoji=False)
    return console if console.is_terminal else Console(file=stream, width=_UNBOUNDED, highlight=False, markup=False)


def _text(found: Words) -> Text:
    from rich.text import Text  # noqa: PLC0415 - see the module

    text, style = found if isinstance(found, Styled) else (found, "")
    return Text(words.printable(text), style, overflow="fold")
