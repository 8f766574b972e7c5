"""Where words go: answers to stdout, everything else to stderr; strict JSON and nothing else where that is asked for.

A terminal gets colours and its own width. A pipe or a file gets neither: every line is as long as it is, so that an id is
never cut or wrapped and `grep` and `awk` work. Rich is imported at the first table: a command in JSON needs none of it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TextIO

import msgspec

from pledger import errors
from pledger.cli.exits import exit_of
from pledger.cli.words import printable
from pledger.history import failures
from pledger.history.failures import Failure

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

#: The width where there is no terminal: more than any line has.
_UNBOUNDED: Final = 1_000_000
#: Characters of a long payload or message where there is no terminal.
_CELL_ELSEWHERE: Final = 2_000

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
    def cell_chars_max(self) -> int:
        """How much of a long value is worth showing: about a line of a terminal, a good deal elsewhere."""
        return self.width or _CELL_ELSEWHERE

    def document(self, value: Any) -> None:
        """The answer as JSON. Times in UTC; payloads go in as `raw`."""
        self.text(to_json(value))

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
            sys.stderr.write(to_json(error_document(error)) + "\n")
            return
        say(f"error: {error}", "red")
        cause = error.__cause__
        while isinstance(cause, errors.FailureError):
            say(f"  caused by {describe_failure(cause)}", "red")
            cause = cause.__cause__

    def usage_error(self, message: str, hint: str) -> None:
        """A command line that cannot be read."""
        if self.as_json:
            document = {"error": {"type": "UsageError", "message": message, "exit_code": 2}}
            sys.stderr.write(to_json(document) + "\n")
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


# JSON -----------------------------------------------------------------------------------------------------------------


def to_json(value: Any) -> str:
    """Strict JSON, indented. Integers of any size and what `raw` marks keep their digits."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def raw(payload: bytes | None) -> msgspec.Raw | None:
    """A payload as a part of a JSON document, as it stands in the ledger."""
    return None if payload is None else msgspec.Raw(payload)


def iso(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat(timespec="milliseconds")


def iso_ms(ms: int | None) -> str | None:
    """The same, of a time as the ledger keeps it."""
    return None if ms is None else iso(datetime.fromtimestamp(ms / 1000, UTC))


def error_document(error: errors.PledgerError) -> dict[str, Any]:
    """{"error": ...}: type, message, exit_code, the error's own attributes, and the chain of its causes."""
    return {"error": {**problem_document(error), "exit_code": int(exit_of(error))}}


def problem_document(error: BaseException) -> dict[str, Any]:
    """Type, message, attributes and causes of an error."""
    attributes = {name: value for name, value in vars(error).items() if isinstance(value, str | int | None)}
    message = attributes.pop("message", str(error))
    fields = {"type": type(error).__name__, "message": message, **attributes}
    if isinstance(error.__cause__, errors.PledgerError):
        fields["cause"] = problem_document(error.__cause__)
    return fields


def failure_document(failure: Failure | None) -> dict[str, Any] | None:
    """A recorded failure with its causes."""
    if failure is None:
        return None
    return {
        "kind": failure.kind,
        "type": failure.type,
        "message": failure.message,
        "details": raw(failure.details),
        "attributes": failure.attributes or {},
        "traceback": failure.traceback,
        "cause": failure_document(failure.cause),
    }


def describe_failure(error: errors.FailureError) -> str:
    """`CardTimeout: gateway did not answer`, whatever the class."""
    failure = failures.from_exception(error)
    return f"{failure.type}: {failure.message}" if failure.message else failure.type
