"""Where words go: answers to stdout, everything else to stderr; strict JSON and nothing else where that is asked for.

A terminal gets colours and its own width. A pipe or a file gets neither: every line is as long as it is, so that an id
is never cut or wrapped and `grep` and `awk` work. Rich is imported at the first table: a command in JSON needs none.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, TextIO

from pledger import errors
from pledger.cli import documents, words
from pledger.cli.words import printable
from pledger.history import failures

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

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
}


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
        self.text(documents.to_json(value))

    def text(self, text: str) -> None:
        """The answer, as it is."""
        sys.stdout.write(text + "\n")

    def print(self, *renderables: RenderableType) -> None:
        """The answer for people. A str is taken as it is: no markup, and nothing in it steers the terminal."""
        from rich.text import Text  # noqa: PLC0415 - see the module

        console = self._console()
        shown = [Text(printable(each)) if isinstance(each, str) else each for each in renderables]
        if console.is_terminal:
            console.print(*shown, sep="\n")
            return
        with console.capture() as captured:
            console.print(*shown, sep="\n", soft_wrap=True)
        # Tables pad their last column.
        lines = captured.get().splitlines()
        sys.stdout.write("".join(line.rstrip() + "\n" for line in lines))

    def table(self, *headers: str, right: Iterable[str] = (), title: str | None = None) -> Table:
        """An empty table in the one style of all. right: the headers of columns with numbers."""
        from rich.table import Table  # noqa: PLC0415 - see the module

        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", title=title)
        for header in headers:
            table.add_column(header, justify="right" if header in right else "left", overflow="fold")
        return table

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
        text = f"error: {error}"
        if isinstance(error, errors.RunBlockedError):
            text = f"{text.removesuffix(error.traceback.rstrip())}{words.user_traceback(error.traceback)}".rstrip()
        say(text, "red")
        if isinstance(error.__cause__, errors.FailureError):
            for line in words.cause_lines(failures.from_exception(error.__cause__), text, _LINE_ELSEWHERE):
                say(f"  caused by {line}", "red")

    def usage_error(self, message: str, hint: str) -> None:
        """A command line that cannot be read."""
        if self.as_json:
            document = {"error": {"type": "UsageError", "message": message, "exit_code": 2}}
            sys.stderr.write(documents.to_json(document) + "\n")
        else:
            say(f"error: {message}", "red")
            say(hint, "dim")


def new_console(stream: TextIO) -> Console:
    from rich.console import Console  # noqa: PLC0415 - see the module

    console = Console(file=stream, highlight=False, markup=False, emoji=False)
    return console if console.is_terminal else Console(file=stream, width=_UNBOUNDED, highlight=False, markup=False)


def say(text: str, style: str) -> None:
    """A line to stderr, coloured on a terminal."""
    if sys.stderr.isatty():
        from rich.text import Text  # noqa: PLC0415 - see the module

        new_console(sys.stderr).print(Text(printable(text), style=style))
    else:
        sys.stderr.write(printable(text) + "\n")
