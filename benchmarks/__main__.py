"""Measure, report, keep: `python -m benchmarks --help`."""

import pstats
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import calls, machine, parent, plot, publish, report
from benchmarks.results import Calls, Failed, Measured, Results
from benchmarks.workloads import WORKLOADS

OUTPUT: Final = machine.ROOT / "build/bench"

#: Columns where there is no terminal to ask: the table as it is, however narrow the log.
LOG_WIDTH: Final = 130

#: Lines of a printed profile.
PROFILE_LINES: Final = 35


def main(
    *,
    only: Annotated[str, typer.Option(metavar="W1,W2", help="These workloads.", show_default="all")] = "",
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of the sizes, once each; judges nothing.")] = False,
    repeats: Annotated[int, typer.Option(min=1, help="Of each workload; the median counts.")] = 5,
    patience: Annotated[float, typer.Option(help="Seconds to wait for a quiet machine before each repeat.")] = 20.0,
    output: Annotated[Path, typer.Option(help="Where JSON, plot and ledgers go.", show_default="build/bench")] = OUTPUT,
    profile: Annotated[str, typer.Option(metavar="W2", help="Print where this one spends its time instead.")] = "",
    write_calls: Annotated[bool, typer.Option("--write-calls", help="Write the function calls per step down.")] = False,
    publish_results: Annotated[bool, typer.Option("--publish", help="Bring the results into docs/.")] = False,
) -> None:
    """Run the workloads and compare them with their targets.

    Exit code 1 when a run does not replay or a workload breaks; a missed target is no failure.
    """
    console = Console()
    if not console.is_terminal:
        console.width = LOG_WIDTH
    output.mkdir(parents=True, exist_ok=True)
    if profile:
        _profile(_chosen(profile)[0], output, quick=quick)
        return
    started = datetime.now(UTC)
    facts = machine.facts(output)
    measured = _measure_all(
        console, _chosen(only), 1 if quick else repeats, quick=quick, patience_s=patience, place=output
    )
    counted = _count_calls(console, [each.workload for each in measured], output)
    results = Results(started, quick, facts, measured, counted)
    results.write(output / f"{started:%Y%m%d-%H%M%S}.json")
    plot.draw(results, [output / "bench.svg", output / "bench.png"])
    report.print_report(console, results)
    console.print(f"JSON and plots are in {output}", soft_wrap=True, highlight=False)
    if write_calls:
        calls.write_baseline({each.workload: each.per_step for each in counted})
    if publish_results:
        console.print(f"written into {publish.publish(results)}", soft_wrap=True, highlight=False)
    if any(each.failure is not None for each in measured):
        raise typer.Exit(1)


def _chosen(names: str) -> list[str]:
    chosen = [name.strip().upper() for name in names.split(",") if name.strip()] or list(WORKLOADS)
    unknown = [name for name in chosen if name not in WORKLOADS]
    if unknown:
        raise typer.BadParameter(f"{', '.join(unknown)}: the workloads are {', '.join(WORKLOADS)}")
    return chosen


def _measure_all(
    console: Console, names: list[str], repeats: int, *, quick: bool, patience_s: float, place: Path
) -> list[Measured]:
    columns = (TextColumn("{task.fields[name]}"), BarColumn(30), TimeElapsedColumn(), TextColumn("{task.description}"))
    found = []
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("", total=len(names), name="")
        for name in names:
            progress.update(bar, name=name)
            measured = parent.measure(
                name,
                repeats,
                quick=quick,
                patience_s=patience_s,
                place=place,
                say=lambda text: progress.update(bar, description=text),
            )
            progress.advance(bar)
            console.print(report.in_a_line(measured), soft_wrap=True, highlight=False)
            found.append(measured)
    return found


def _count_calls(console: Console, names: list[str], place: Path) -> list[Calls]:
    found = []
    for name in calls.COUNTED:
        if name not in names:
            continue
        with console.status(f"counting the function calls of {name}"):
            counted = parent.count_calls(name, place)
        if not isinstance(counted, Failed):
            found.append(Calls(name, round(counted, 1), calls.baseline(name)))
    return found


def _profile(name: str, output: Path, *, quick: bool) -> None:
    file = output / f"{name}.pstats"
    failed = parent.profile(name, file, quick=quick, place=output)
    if failed is not None:
        print(failed.text, file=sys.stderr)
        raise typer.Exit(1)
    stats = pstats.Stats(str(file)).strip_dirs()
    stats.sort_stats("tottime").print_stats(PROFILE_LINES)
    stats.sort_stats("cumtime").print_stats(PROFILE_LINES)
    print(f"in full: {file}")


if __name__ == "__main__":
    typer.run(main)
