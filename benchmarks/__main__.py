"""Measure, report, keep: `python -m benchmarks --help`."""

import contextlib
import os
import pstats
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import calls, machine, parent, plot, publish, report
from benchmarks.ground import Server, StoreName
from benchmarks.results import Calls, Failed, Measured, Results
from benchmarks.workloads import WORKLOADS
from pledger.testing.postgres import postgres_server

OUTPUT: Final = machine.ROOT / "build/bench"

#: Columns where there is no terminal to ask: the table as it is, however narrow the log.
LOG_WIDTH: Final = 130

#: Lines of a printed profile.
PROFILE_LINES: Final = 35


def main(
    *,
    store: Annotated[StoreName, typer.Option(help="Where the ledgers lie.")] = "sqlite",
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
    started = datetime.now(UTC)
    with _served(store, output) as server:
        if profile:
            _profile(_chosen(profile, store)[0], output, quick=quick, server=server)
            return
        plan = Plan(1 if quick else repeats, quick, patience, output, server)
        measured = _measure_all(console, _chosen(only, store), store, plan)
        facts = machine.facts(output, server)
    # On SQLite: what a server does meanwhile is no call of ours, and the same step makes the same calls.
    counted = _count_calls(console, [each.workload for each in measured], output) if store == "sqlite" else []
    results = Results(started, quick, facts, measured, counted, store)
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


class Plan(NamedTuple):
    """repeats: of each workload. patience_s: for a quiet machine. place: below it are the repeats' directories."""

    repeats: int
    quick: bool
    patience_s: float
    place: Path
    server: Server | None


@contextlib.contextmanager
def _served(store: StoreName, output: Path) -> Iterator[Server | None]:
    """One server for the whole run, with its shipped settings; it counts its statements."""
    if store == "sqlite":
        yield None
        return
    with postgres_server(output / f"postgres-{os.getpid()}", shared_preload_libraries="pg_stat_statements") as server:
        yield Server(server.url, server.pid)


def _chosen(names: str, store: StoreName) -> list[str]:
    told = [name for name, workload in WORKLOADS.items() if store in workload.stores]
    chosen = [name.strip().upper() for name in names.split(",") if name.strip()] or told
    unknown = [name for name in chosen if name not in told]
    if unknown:
        raise typer.BadParameter(f"{', '.join(unknown)}: the workloads on {store} are {', '.join(told)}")
    return chosen


def _measure_all(console: Console, names: list[str], store: StoreName, plan: Plan) -> list[Measured]:
    columns = (TextColumn("{task.fields[name]}"), BarColumn(30), TimeElapsedColumn(), TextColumn("{task.description}"))
    found = []
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("", total=len(names), name="")
        for name in names:
            progress.update(bar, name=name)
            measured = parent.measure(
                name,
                min(plan.repeats, WORKLOADS[name].repeats_max or plan.repeats),
                quick=plan.quick,
                patience_s=plan.patience_s,
                place=plan.place,
                server=plan.server,
                say=lambda text: progress.update(bar, description=text),
            )
            progress.advance(bar)
            console.print(report.in_a_line(measured, store), soft_wrap=True, highlight=False)
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


def _profile(name: str, output: Path, *, quick: bool, server: Server | None) -> None:
    file = output / f"{name}.pstats"
    failed = parent.profile(name, file, quick=quick, place=output, server=server)
    if failed is not None:
        print(failed.text, file=sys.stderr)
        raise typer.Exit(1)
    stats = pstats.Stats(str(file)).strip_dirs()
    stats.sort_stats("tottime").print_stats(PROFILE_LINES)
    stats.sort_stats("cumtime").print_stats(PROFILE_LINES)
    print(f"in full: {file}")


if __name__ == "__main__":
    typer.run(main)
