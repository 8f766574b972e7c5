"""The comparison as tables: for a terminal, and as Markdown."""

from collections.abc import Iterator, Sequence
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.figures import shown
from benchmarks.peers.catalogue import FIGURES, PEERS, SIZES, Compared
from benchmarks.peers.results import Comparison, Measured, Terms

#: In a cell: could not be measured; a note says why.
NO_RESULT: Final = "-"

#: How the reason begins where an engine has nothing of the kind, and what is in the cell then.
NO_FEATURE: Final = "no such feature"

#: The reason of an engine that did not take part in the run of a workload.
NOT_IN_IT: Final = "not in that run"


def print_report(console: Console, found: Comparison) -> None:
    # The tables are wide: one row is one line, however narrow the terminal.
    for headings, rows in ((_TERMS, _terms(found)), (_headings(found), list(_figures(found)))):
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for number, heading in enumerate(headings):
            table.add_column(heading, justify="right" if number > 1 and headings is not _TERMS else "left")
        for row in rows:
            table.add_row(*row)
        console.print(table)
    for line in _notes(found):
        console.print(line, soft_wrap=True, highlight=False, markup=False)


def to_markdown(found: Comparison) -> str:
    """The same, for docs/benchmarks.md."""
    headings = _headings(found)
    parts = [
        [*_heads(found)],
        ["| " + " | ".join(_TERMS) + " |", "| --- | --- | --- | --- | --- | --- |"],
        ["| " + " | ".join(row) + " |" for row in _terms(found)],
        ["", "| " + " | ".join(headings) + " |", "| --- | --- |" + " ---: |" * (len(headings) - 2)],
        ["| " + " | ".join(row) + " |" for row in _figures(found)],
        [""],
        [f"- {line}" for line in _notes(found)],
    ]
    machine = ", ".join(f"{name} {value}" for name, value in found.machine.items())
    head, *rest = parts
    return "\n".join([*head, "", *(line for part in rest for line in part), f"- Machine: {machine}."])


_TERMS: Final = ("engine", "versions", "Python", "durability", "per step", "counted")


def _terms(found: Comparison) -> list[Sequence[str]]:
    return [_term(each) for each in found.terms]


def _term(terms: Terms) -> Sequence[str]:
    peer = PEERS[terms.peer]
    if terms.failure is not None:
        return (peer.title, "not installed: see below", "", peer.durability, "", "")
    versions = ", ".join(f"{name.rpartition('/')[2]} {version}" for name, version in terms.versions.items())
    per_step = ", ".join(f"{shown(max(0.0, count))} {name}" for name, count in terms.per_step.items())
    return (peer.title, versions, terms.python, peer.durability, per_step, terms.counted)


def _heads(found: Comparison) -> Iterator[str]:
    """Which run it was, and which one earlier workloads are of."""
    yield (
        f"Run of {found.started:%d %B %Y, %H:%M %Z}, medians of {found.repeats}. x: times worse than Pledger; of who "
        f"is on PostgreSQL, than Pledger there, where that was measured."
    )
    for run in found.earlier:
        when = f"{run.started:%d %B %Y, %H:%M %Z}"
        yield f"{', '.join(run.workloads)}: run of {when}, medians of {run.repeats}, commit {run.commit}."


def _headings(found: Comparison) -> Sequence[str]:
    return ("", "figure", *(PEERS[each.peer].title for each in found.terms))


def _figures(found: Comparison) -> Iterator[Sequence[str]]:
    workload = ""
    measured = {each.workload for each in found.measured}
    for figure in FIGURES:
        if figure.workload in measured:
            label = f"{figure.label}, {figure.unit}" if figure.unit else figure.label
            cells = (_cell(found, each.peer, figure) for each in found.terms)
            yield (figure.workload if figure.workload != workload else "", label, *cells)
            workload = figure.workload


def _cell(found: Comparison, peer: str, figure: Compared) -> str:
    median, times = found.median(peer, figure), found.times_worse(peer, figure)
    if median is None:
        measured = found.of(peer, figure.workload)
        has_none = measured is not None and (measured.failure or "").startswith(NO_FEATURE)
        return NO_FEATURE if has_none else NO_RESULT
    if times is None or peer == next(iter(PEERS)):
        return shown(median)
    return f"{shown(median)} (x{shown(times)})"


def _notes(found: Comparison) -> Iterator[str]:
    for terms in found.terms:
        if terms.failure is not None:
            yield f"{PEERS[terms.peer].title} could not be installed: {terms.failure}."
    yield from _reasons(found)
    smaller = [
        f"{each.workload} {PEERS[each.peer].title} {each.size:,}"
        for each in found.measured
        if each.samples and not found.quick and each.size != SIZES[each.workload]
    ]
    if smaller:
        yield f"Smaller sizes, since the usual ones take many minutes: {', '.join(smaller)}."
    disturbed = sorted({each.workload for each in found.measured if each.is_disturbed})
    if disturbed:
        yield f"NOT QUIET: other programs worked on this machine during {', '.join(disturbed)}; do not publish these."
    elif found.measured:
        yield "The machine was quiet."
    if found.quick:
        yield "A quick run: sizes are a twentieth, so that start-up weighs too much. It shows that everything works."


def _reasons(found: Comparison) -> Iterator[str]:
    """Why a workload of an engine has no figures."""
    for terms in found.terms:
        reasons: dict[str, list[str]] = {}
        for workload in found.workloads:
            measured = found.of(terms.peer, workload)
            reason = NOT_IN_IT if measured is None else measured.failure
            if reason is not None and terms.failure is None:
                reasons.setdefault(reason, []).append(workload)
        for reason, workloads in reasons.items():
            yield f"{', '.join(workloads)} of {PEERS[terms.peer].title}: {reason}."


def in_a_line(measured: Measured) -> str:
    """The headline figures of one workload of one engine, as soon as they are known."""
    told = f"{measured.workload}  {PEERS[measured.peer].title}: "
    if measured.failure is not None:
        return told + measured.failure
    medians = (
        f"{shown(median)} {figure.unit}"
        for figure in FIGURES
        if figure.workload == measured.workload
        and figure.headline
        and (median := measured.median(figure.key)) is not None
    )
    return told + ", ".join(medians)
