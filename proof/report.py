"""The proof in words and tables: for a terminal, and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from proof.planted import SEEDS
from proof.results import Proof, Stage
from proof.simulations import FAULTS
from tests.faults.matrix import CHECKS


def in_a_line(stage: Stage) -> str:
    """What a stage came to, as soon as it is known."""
    verdict = f"{len(stage.violations)} VIOLATIONS" if stage.violations else "holds"
    return f"{stage.name}: {verdict}, {_sum(stage)} ({stage.seconds:,.0f} s)"


def print_report(console: Console, proof: Proof) -> None:
    for title, headings, rows in _tables(proof):
        table = Table(*headings, title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        for row in rows:
            table.add_row(*row)
        console.print(table)
    for each in proof.violations:
        console.print(f"VIOLATED: {each.what}\n  again: {each.again}", soft_wrap=True, highlight=False, markup=False)
    if not proof.violations:
        console.print("Every promise held.", highlight=False)


def to_markdown(proof: Proof) -> str:
    """The same, for docs/proof.md."""
    lines = [f"Run of {proof.started:%d %B %Y, %H:%M %Z}; it took {_duration(proof.seconds)}.", ""]
    lines += [f"- {in_a_line(stage)}" for stage in proof.stages]
    for title, headings, rows in _tables(proof):
        lines += ["", f"**{title}**", "", f"| {' | '.join(headings)} |", "| --- " * len(headings) + "|"]
        lines += ["| " + " | ".join(row) + " |" for row in rows]
    # Without the rows below the first line, which say all that the ledger holds: the JSON has them.
    lines += ["", *(f"- VIOLATED: {_in_short(each.what)}; again: `{each.again}`" for each in proof.violations), ""]
    machine = ", ".join(f"{name} {value}" for name, value in proof.machine.items())
    return "\n".join([*lines, f"Machine: {machine}."])


def _in_short(what: str) -> str:
    first = what.partition("\n")[0].partition("; there is RunRow(")[0]
    return f"{first[:200]}..." if len(first) > 200 else first  # noqa: PLR2004 - as much as a list can bear


def _sum(stage: Stage) -> str:
    said = [
        f"{each.seeds:,} seeds from {each.first}, {each.runs:,} runs, {each.hours:,.1f} simulated hours, "
        f"{sum(each.hits.values()):,} faults"
        for each in stage.simulated
    ]
    if stage.planted:
        found = [each.seeds for each in stage.planted if each.seeds is not None]
        said.append(f"{len(found)} of {len(stage.planted)} planted bugs found")
    if stage.explored:
        whole = [each.states for each in stage.explored if not each.guard]
        guards = sum(bool(each.guard) for each in stage.explored)
        said.append(f"{sum(whole):,} states, {guards} guards taken out one by one")
    if stage.replayed:
        pythons = ", ".join(each.python for each in stage.replayed)
        said.append(f"{stage.replayed[0].histories} golden histories on Python {pythons}")
    said += [", ".join(f"{name} {figure:,}" for name, figure in each.figures.items()) for each in stage.real]
    return "; ".join(said)


def _tables(proof: Proof) -> Iterator[tuple[str, Sequence[str], list[Sequence[str]]]]:
    simulated = [each for stage in proof.stages for each in stage.simulated]
    if simulated:
        kinds = list(dict.fromkeys(kind for each in simulated for kind in FAULTS[each.store]))
        rows: list[Sequence[str]] = [
            (kind, *(_hits(each.hits.get(kind, 0), there=kind in FAULTS[each.store]) for each in simulated))
            for kind in kinds
        ]
        yield "Faults hit", ("fault", *(each.store for each in simulated)), rows
    if any(each.checked for each in simulated):
        rows = [
            (
                ", ".join(invariants),
                check,
                *(f"{each.checked[check]:,}" if each.checked.get(check) else "" for each in simulated),
            )
            for check, invariants in CHECKS.items()
        ]
        yield "Invariants, and how often each was checked", ("", "check", *(each.store for each in simulated)), rows
    planted = [each for stage in proof.stages for each in stage.planted]
    if planted:
        rows = [
            (
                each.name.replace("_", " "),
                each.store,
                f"NOT in {SEEDS}" if each.seeds is None else f"{each.seeds}",
                each.violation,
            )
            for each in planted
        ]
        yield "Planted bugs", ("what is taken out", "store", "seeds until it was found", "broken promise"), rows
    explored = [each for stage in proof.stages for each in stage.explored]
    if explored:
        rows = [
            (
                each.model,
                each.guard or "nothing",
                f"{each.states:,}",
                f"{each.depth}",
                "none" if each.trace is None else f"{each.trace} steps",
            )
            for each in explored
        ]
        yield "Bounded models", ("protocol", "taken out", "states", "depth", "violation"), rows
    replayed = [each for stage in proof.stages for each in stage.replayed]
    if replayed:
        rows = [(each.python, f"{each.histories}", f"{each.events:,}", f"{each.environments}") for each in replayed]
        yield "Golden histories", ("Python", "histories", "events", "environments"), rows


def _hits(count: int, *, there: bool) -> str:
    if not there:
        return ""
    return f"{count:,}" if count else "NEVER"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
