"""What the demo shows: live on a terminal, a line now and then elsewhere, a verdict at the end."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from examples.orders.reconcile import Check, Truth, tally

#: Offenders named in the verdict; beyond that, their number says enough.
NAMED_MAX = 10

#: Seconds between two lines where there is no terminal.
LINE_EVERY_S = 2.0


@dataclass
class Progress:
    """Where the demo stands. ended: by order id, how it ended. requests: answered by the outside so far.

    restarts: of the server, None where there is none.
    """

    orders: int
    started: int = 0
    ended: dict[int, str] = field(default_factory=dict)
    kills: int = 0
    restarts: int | None = None
    requests: int = 0


class Screen:
    """Draws a Progress whenever it is told to."""

    def __init__(self, console: Console, progress: Progress) -> None:
        self._console = console
        self._progress = progress
        self._begun = self._line_due = time.monotonic()
        self._rate = Rate(self._begun)
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def draw(self) -> None:
        now = time.monotonic()
        self._rate.note(now, self._progress.requests)
        if self._live:
            self._live.update(self._panel(now), refresh=True)
        elif now >= self._line_due:
            self._line_due = now + LINE_EVERY_S
            self._console.print(self._line(now), soft_wrap=True)

    def _line(self, now: float) -> str:
        progress = self._progress
        restarts = "" if progress.restarts is None else f", {progress.restarts} restarts"
        ended = ", ".join(f"{count} {ending}" for ending, count in tally(progress.ended))
        return (
            f"{now - self._begun:5.1f} s  {progress.started} of {progress.orders} orders in, "
            f"{ended or '0 ended'}, {progress.kills} kills{restarts}, {self._rate.per_s:.0f} steps/s"
        )

    def _panel(self, now: float) -> Group:
        progress = self._progress
        table = Table.grid(padding=(0, 2))
        table.add_column(justify="right", style="bold")
        table.add_column()
        for ending, count in tally(progress.ended):
            table.add_row(str(count), ending)
        table.add_row(str(progress.started - len(progress.ended)), Text("under way", style="dim"))
        table.add_row(str(progress.kills), Text("workers killed", style="red"))
        table.add_row(f"{self._rate.per_s:.0f}", "steps/s")
        table.add_row(f"{now - self._begun:.0f}", "seconds")
        return Group(ProgressBar(total=progress.orders, completed=len(progress.ended), width=60), table)


class Rate:
    """Per second, over the last few seconds."""

    WINDOW_S = 3.0

    def __init__(self, now: float) -> None:
        self._samples = [(now, 0)]

    def note(self, now: float, total: int) -> None:
        self._samples = [one for one in self._samples if one[0] >= now - self.WINDOW_S] or self._samples[-1:]
        self._samples.append((now, total))

    @property
    def per_s(self) -> float:
        (first_at, first), (last_at, last) = self._samples[0], self._samples[-1]
        return (last - first) / (last_at - first_at) if last_at > first_at else 0.0


# The verdict ----------------------------------------------------------------------------------------------------------


def _table(title: str, *columns: str, numbers: bool = False) -> Table:
    """numbers: all columns but the first hold some."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, min_width=40)
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if numbers and place else "left", no_wrap=True)
    return table


def judge(console: Console, checks: Sequence[Check]) -> bool:
    """Print every check; whether all of them hold."""
    table = _table("Ledger against outside world", "", "check", "offenders")
    table.columns[-1].no_wrap = False
    for check in checks:
        mark = Text("wrong", style="bold red") if check.offenders else Text("right", style="green")
        table.add_row(mark, check.question, _named(check.offenders))
    console.print(table)
    agree = not any(check.offenders for check in checks)
    console.print("[green]They agree." if agree else "[bold red]They do not agree.")
    return agree


def _named(offenders: Sequence[int]) -> str:
    more = len(offenders) - NAMED_MAX
    return ", ".join(map(str, offenders[:NAMED_MAX])) + (f" and {more} more" if more > 0 else "")


def print_endings(console: Console, ledger: Mapping[int, str]) -> None:
    table = _table("What the ledger says", "ending", "orders", numbers=True)
    for ending, count in tally(ledger):
        table.add_row(ending, str(count))
    console.print(table)


def print_calls(console: Console, truth: Truth) -> None:
    """How the outside systems were called: the mess behind the calm result."""
    columns = ("in all", "refused", "unavailable", "no answer", "came again", "caller died")
    table = _table("What the outside systems saw", "request", *columns, numbers=True)
    for operation in sorted({operation for operation, _ in truth.calls}):
        table.add_row(operation, *map(str, _mishaps(truth, operation)))
    console.print(table)


def _mishaps(truth: Truth, operation: str) -> Iterator[int]:
    outcomes = {outcome: count for (name, outcome), count in truth.calls.items() if name == operation}
    plain = {"done", "repeated", "UnavailableError", "NoAnswerError", None}
    yield sum(outcomes.values())
    yield sum(count for outcome, count in outcomes.items() if outcome not in plain)
    for outcome in ("UnavailableError", "NoAnswerError", "repeated", None):
        yield outcomes.get(outcome, 0)
