"""The results as tables: for a terminal, and as Markdown."""

import statistics
from collections.abc import Iterator, Sequence
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.calls import TOLERANCE
from benchmarks.figures import Figure, shown
from benchmarks.ground import StoreName
from benchmarks.results import Calls, Measured, Results
from benchmarks.workloads import WORKLOADS

_HEADINGS: Final = ("", "figure", "median", "min-max", "target", "", "commits")
_STYLES: Final = {"met": "green", "missed": "bold red", "not measured": "yellow", "disturbed": "yellow"}


def print_report(console: Console, results: Results) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, heading in enumerate(_HEADINGS):
        right = number in (2, 3, 4, 6)
        table.add_column(heading, justify="right" if right else "left", no_wrap=number != 1)
    for measured in results.measured:
        for row in _rows(measured, results.store, quick=results.quick):
            verdict = row[5]
            table.add_row(*row[:5], Text(verdict, _STYLES.get(verdict, "")), row[6])
        table.add_section()
    console.print(table)
    for line in (*_notes(results), *_calls(results.calls)):
        console.print(line, soft_wrap=True, highlight=False, markup=False)


def to_markdown(results: Results) -> str:
    """The same, for docs/benchmarks.md."""
    lines = [
        "| | figure | median | min-max | target | | in commits |",
        "| --- | --- | ---: | ---: | ---: | --- | ---: |",
    ]
    for measured in results.measured:
        lines += ["| " + " | ".join(row) + " |" for row in _rows(measured, results.store, quick=results.quick)]
    machine = ", ".join(f"{name} {value}" for name, value in results.machine.items())
    notes = [f"- {line}" for line in (*_notes(results), *_calls(results.calls))]
    return "\n".join(
        [f"Run of {results.started:%d %B %Y, %H:%M %Z}.", "", *lines, "", *notes, f"- Machine: {machine}."]
    )


def _rows(measured: Measured, store: StoreName, *, quick: bool) -> Iterator[Sequence[str]]:
    if not measured.samples:
        yield (measured.workload, "failed", "", "", "", "", "")
        return
    for number, figure in enumerate(WORKLOADS[measured.workload].figures_on(store)):
        yield (measured.workload if number == 0 else "", *_row(figure, measured, quick=quick))


def _row(figure: Figure, measured: Measured, *, quick: bool) -> Sequence[str]:
    values = measured.values(figure.key)
    verdict = "" if quick else measured.verdict(figure)
    if not values:
        return (figure.label, "", "", figure.bound, verdict, "")
    median = statistics.median(values)
    spread = f"{shown(min(values))}-{shown(max(values))}" if len(values) > 1 else ""
    commits = shown(measured.in_commits(figure.key)) if figure.unit == "ms" else ""
    return (figure.label, shown(median, figure.unit), spread, figure.bound, verdict, commits)


def _notes(results: Results) -> Iterator[str]:
    samples = [sample for measured in results.measured for sample in measured.samples]
    if samples:
        commits, fsyncs = [each.commit_ms for each in samples], [each.fsync_ms for each in samples]
        yield (
            f"A durable commit of one row took {shown(statistics.median(commits))} ms here ({shown(min(commits))} to "
            f"{shown(max(commits))}, measured around every repeat; the last column is in these), an fsync "
            f"{shown(statistics.median(fsyncs))} ms."
        )
        runs, events = sum(each.runs for each in samples), sum(each.events for each in samples)
        yield f"Verified by full replay: {runs:,} runs with {events:,} events."
    disturbed = [f"{each.workload} ({shown(each.other_cores)} cores)" for each in results.measured if each.is_disturbed]
    if disturbed:
        yield (
            f"NOT QUIET: other programs worked on this machine during {', '.join(disturbed)}; times are too high, and "
            f"ratios of two times are not judged."
        )
    elif samples:
        yield "The machine was quiet."
    if results.quick:
        yield "A quick run: sizes are a tenth of what the targets are for, so that nothing is judged."
    for measured in results.measured:
        if measured.failure is not None:
            yield f"{measured.workload} FAILED: {measured.failure.rstrip()}"


def _calls(calls: Sequence[Calls]) -> Iterator[str]:
    for each in calls:
        told = f"Function calls per step of {each.workload}: {each.per_step:,.0f}"
        if each.baseline is None:
            yield f"{told} (none written down for this Python)."
            continue
        change = each.per_step / each.baseline - 1
        moved = f", {change:+.0%}" if abs(change) > TOLERANCE else ""
        yield f"{told} (written down: {each.baseline:,.0f}{moved})."


def in_a_line(measured: Measured, store: StoreName) -> str:
    """The figures that have a target, as soon as they are known."""
    if measured.failure is not None:
        return f"{measured.workload}  FAILED"
    medians = (
        shown(statistics.median(values), figure.unit)
        for figure in WORKLOADS[measured.workload].figures_on(store)
        if figure.target is not None and (values := measured.values(figure.key))
    )
    return f"{measured.workload}  {', '.join(medians)}"
