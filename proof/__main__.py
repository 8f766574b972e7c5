"""Try to break the ledger, and say what came of it: `python -m proof --help`."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import machine
from proof import determinism, models, planted, processes, publish, report, simulations
from proof.results import Proof, Stage
from tests.simulation.reverts.every import EVERY

OUTPUT: Final = machine.ROOT / "build/proof"
STAGES: Final = ("memory", "sqlite", "postgres", "planted", "models", "kills", "contention", "determinism")
#: Of eight processes on one file.
CONTENTION_S: Final = 60

#: Columns where there is no terminal to ask.
LOG_WIDTH: Final = 130


def main(
    *,
    seeds: Annotated[int, typer.Option(min=1, help="Of the simulation in memory.")] = 2_000,
    sqlite_seeds: Annotated[int, typer.Option(min=1, help="Of the simulation over SQLite.")] = 400,
    server_seeds: Annotated[int, typer.Option(min=1, help="Of the simulation over a model of PostgreSQL.")] = 400,
    first: Annotated[int, typer.Option(min=0, help="The first seed of each.")] = 0,
    kills: Annotated[int, typer.Option(min=0, help="Of real processes, at least; each commit in any case.")] = 500,
    only: Annotated[str, typer.Option(metavar="memory,models", help="These stages.", show_default="all")] = "",
    full: Annotated[bool, typer.Option("--full", help="Also the largest model: some minutes, 2 GB.")] = False,
    output: Annotated[Path, typer.Option(help="Where the JSON goes.", show_default="build/proof")] = OUTPUT,
    publish_figures: Annotated[bool, typer.Option("--publish", help="Bring the figures into docs/proof.md.")] = False,
) -> None:
    """Run the stages of the proof.

    Exit code 1 when a promise was broken, a fault was never hit, a check never made, or a planted bug was not found.
    """
    console = Console()
    if not console.is_terminal:
        console.width = LOG_WIDTH
    output.mkdir(parents=True, exist_ok=True)
    proof = Proof(datetime.now(UTC), machine.facts(output), [])
    columns = (TextColumn("{task.description:12}"), BarColumn(30), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        for name in _chosen(only):
            seeds_of = range(first, first + {"sqlite": sqlite_seeds, "postgres": server_seeds}.get(name, seeds))
            bar = progress.add_task(name, total=_size(name, seeds_of, full=full))
            stage = _run(name, seeds_of, lambda n, bar=bar: progress.advance(bar, n), full=full, kills=kills)  # type: ignore[misc]
            proof.stages.append(stage)
            progress.remove_task(bar)
            console.print(report.in_a_line(stage), soft_wrap=True, highlight=False)
    simulated = [stage for stage in proof.stages if stage.simulated]
    if simulated:
        simulated[-1].violations += simulations.unchecked([each for stage in simulated for each in stage.simulated])
    file = output / f"{proof.started:%Y%m%d-%H%M%S}.json"
    proof.write(file)
    report.print_report(console, proof)
    console.print(f"JSON: {file}", soft_wrap=True, highlight=False)
    if publish_figures:
        console.print(f"written into {publish.publish(proof)}", soft_wrap=True, highlight=False)
    if proof.violations:
        raise typer.Exit(1)


def _chosen(names: str) -> list[str]:
    chosen = [name.strip() for name in names.split(",") if name.strip()] or list(STAGES)
    unknown = [name for name in chosen if name not in STAGES]
    if unknown:
        raise typer.BadParameter(f"{', '.join(unknown)}: the stages are {', '.join(STAGES)}")
    return chosen


def _size(name: str, seeds: range, *, full: bool) -> int:
    sizes = {"planted": len(EVERY), "models": len(models.jobs(full=full)), "determinism": len(determinism.MINORS)}
    return sizes.get(name, len(seeds) if name in simulations.FAULTS else 1)


def _run(name: str, seeds: range, done: Callable[[int], None], *, full: bool, kills: int) -> Stage:
    began = time.perf_counter()
    stage = Stage(name, 0.0, [])
    match name:
        case "planted":
            stage.planted, stage.violations = planted.run(done)
        case "models":
            stage.explored, stage.violations = models.run(done, full=full)
        case "kills":
            stage.real, stage.violations = processes.kill(kills, done)
        case "contention":
            stage.real, stage.violations = processes.contend(CONTENTION_S, done)
        case "determinism":
            stage.replayed, stage.violations = determinism.run(done)
        case _:
            simulated, stage.violations = simulations.run(name, seeds, done)
            stage.simulated = [simulated]
    stage.seconds = time.perf_counter() - began
    return stage


if __name__ == "__main__":
    typer.run(main)
