"""Compare with other engines, report, keep: `python -m benchmarks.peers --help`."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import publish
from benchmarks.machine import ROOT
from benchmarks.peers import plot, report
from benchmarks.peers.catalogue import PEERS, SIZES, named, reference_of
from benchmarks.peers.compare import Plan, compare
from benchmarks.peers.results import PUBLISHED, Comparison, Measured
from benchmarks.peers.runner import Harness, stop_on_signals

OUTPUT: Final = ROOT / "build/peers"

#: Columns where there is no terminal to ask.
LOG_WIDTH: Final = 200


def main(
    *,
    only: Annotated[str, typer.Option(metavar="restate,dbos", help="These and Pledger.", show_default="all")] = "",
    workloads: Annotated[str, typer.Option(metavar="W1,W2", help="These.", show_default="all")] = "",
    quick: Annotated[bool, typer.Option("--quick", help="A twentieth of the sizes, once each.")] = False,
    repeats: Annotated[int, typer.Option(min=3, help="Of each workload; the median counts.")] = 3,
    patience: Annotated[float, typer.Option(help="Seconds to wait for a quiet machine before each repeat.")] = 20.0,
    limit: Annotated[float, typer.Option(help="Seconds that one repeat of one engine may take.")] = 300.0,
    output: Annotated[Path, typer.Option(help="Where all is kept.", show_default="build/peers")] = OUTPUT,
    publish_results: Annotated[bool, typer.Option("--publish", help="Bring the results into docs/.")] = False,
) -> None:
    """Install the other engines below build/peers, run the workloads on all of them, and compare.

    What an engine cannot do, or fails at, is in the report with its reason. Exit code 1 when Pledger fails at anything.
    """
    if not sys.platform.startswith("linux"):
        raise typer.BadParameter("the comparison runs on Linux: it finds and measures processes in /proc")
    if publish_results and quick:
        raise typer.BadParameter("a quick run shows that everything works; its figures are not for publishing")
    stop_on_signals()
    console = Console()
    if not console.is_terminal:
        console.width = LOG_WIDTH
    output = output.absolute()
    output.mkdir(parents=True, exist_ok=True)
    names = _engines(only.lower())
    columns = (BarColumn(30), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as progress:
        plan = Plan(
            peers=[PEERS[name] for name in names],
            workloads=_chosen(workloads.upper(), list(SIZES)),
            repeats=1 if quick else repeats,
            quick=quick,
            patience_s=0.0 if quick else patience,
            done=lambda measured: console.print(report.in_a_line(measured), soft_wrap=True, highlight=False),
        )
        bar = progress.add_task("", total=plan.tasks)
        harness = Harness(output, limit, _Progress(console, lambda text: progress.update(bar, description=text)))
        found = compare(plan, harness, lambda: progress.advance(bar))
    _keep(console, found, output, publish_results=publish_results)
    if any(each.failure is not None for each in _pledgers(found)):
        raise typer.Exit(1)


class _Progress:
    """Shows what is being done: in the bar, or, where there is no terminal, a line for each new subject."""

    def __init__(self, console: Console, show: Callable[[str], None]) -> None:
        self._console = console
        self._show = show
        self._subject = ""

    def __call__(self, text: str) -> None:
        self._show(text)
        subject = text.partition(":")[0]
        if not self._console.is_terminal and subject != self._subject:
            self._console.print(text, soft_wrap=True, highlight=False, markup=False)
        self._subject = subject


def _keep(console: Console, found: Comparison, output: Path, *, publish_results: bool) -> None:
    found.write(output / f"{found.started:%Y%m%d-%H%M%S}.json")
    plot.draw(found, [output / "peers.svg", output / "peers.png"])
    report.print_report(console, found)
    console.print(f"JSON, plots and the engines' log are in {output}", soft_wrap=True, highlight=False)
    if publish_results:
        # What this run has not measured stays as it was published.
        found = found.over(Comparison.read(PUBLISHED)) if PUBLISHED.exists() else found
        found.write(PUBLISHED)
        page = publish.publish_section(
            "peers",
            report.to_markdown(found) + "\n\n![How many times worse than Pledger each engine is](benchmarks-peers.svg)",
        )
        plot.draw(found, [page.with_name("benchmarks-peers.svg")])
        console.print(f"written into {page}", soft_wrap=True, highlight=False)


def _pledgers(found: Comparison) -> list[Measured]:
    return [each for each in found.measured if each.peer == next(iter(PEERS))]


def _engines(names: str) -> list[str]:
    """In the order of the catalogue, each with the Pledger that it is compared with."""
    known = [*PEERS, *(each.adapter for each in PEERS.values())]
    found = {peer for name in _chosen(names, known) for peer in named(name)}
    wanted = {next(iter(PEERS)), *found, *map(reference_of, found)}
    return [name for name in PEERS if name in wanted]


def _chosen(names: str, known: list[str]) -> list[str]:
    chosen = [name.strip() for name in names.split(",") if name.strip()] or known
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise typer.BadParameter(f"{', '.join(unknown)}: there are {', '.join(dict.fromkeys(known))}")
    return chosen


if __name__ == "__main__":
    typer.run(main)
