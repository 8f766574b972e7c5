"""Progress of long work, on stderr: a bar on a terminal, elsewhere a line now and then, nothing in JSON mode."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from pledger.cli.output import Output, new_console, say

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

#: Seconds between two lines where there is no terminal.
_LINE_EVERY_S: Final = 5.0


class Progress:
    """what: in words, like "runs replayed". total: how many there are, None where nobody knows."""

    def __init__(self, output: Output, what: str, total: int | None = None) -> None:
        self._what = what
        self._total = total
        self._done = 0
        self._shown = not output.as_json
        self._line_due_s = time.monotonic() + _LINE_EVERY_S
        self._bar: Bar | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        if self._shown and sys.stderr.isatty():
            # Imported here: only a terminal needs it.
            from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415
            from rich.progress import Progress as Bar  # noqa: PLC0415

            counted = (BarColumn(), MofNCompleteColumn()) if self._total is not None else ()
            columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), *counted, TimeElapsedColumn())
            self._bar = Bar(*columns, console=new_console(sys.stderr), transient=True)
            self._task = self._bar.add_task(self._what, total=self._total)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self) -> None:
        """One more is done."""
        self._done += 1
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task)
        elif self._shown and time.monotonic() >= self._line_due_s:
            self._line_due_s = time.monotonic() + _LINE_EVERY_S
            of_total = "" if self._total is None else f" of {self._total:,}"
            say(f"{self._done:,}{of_total} {self._what}", "dim")
