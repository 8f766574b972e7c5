"""`pledger dependency`."""

from __future__ import annotations

import asyncio
import shlex
from typing import Annotated, Final, TypeAlias

import typer

from pledger import errors
from pledger.cli import documents, options, words
from pledger.cli.exits import Exit
from pledger.cli.ledger import opened
from pledger.cli.output import Output, Styled, Words
from pledger.client import DependencySummary

dependencies: Final = typer.Typer(
    name="dependency", help="Systems that activities depend on: their retry budgets and circuit breakers."
)

Name: TypeAlias = Annotated[str, typer.Argument(metavar="NAME", help="Of the RetryBudget, as the code has it.")]
Why: TypeAlias = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Shown with it.", show_default=False)]

#: Characters of a reason or a failure.
_LINE_CHARS: Final = 500
_STYLES: Final = {"closed": "green", "open": "red", "half_open": "yellow", "paused": "yellow"}


@dependencies.command("list")
def list_dependencies(
    *, url: options.Url = options.DEFAULT_URL, namespace: options.Namespace = "default", as_json: options.Json = False
) -> int:
    """The dependencies, whether attempts begin, and what the last ones have come to."""
    output = Output(as_json=as_json)
    found, now_ms = asyncio.run(_read(url, namespace))
    if as_json:
        output.document({"dependencies": [documents.dependency(each) for each in found]})
    elif found:
        headers = ("DEPENDENCY", "CIRCUIT", "SINCE", "CALLS", "RETRIES", "FAILED", "WHY")
        rows = [_row(each, now_ms, output.cell_chars_max) for each in found]
        output.table(headers, rows, right=("CALLS", "RETRIES", "FAILED"))
    else:
        output.note("no worker has stated a retry budget yet")
    return Exit.OK


@dependencies.command("show")
def show_dependency(
    name: Name,
    *,
    url: options.Url = options.DEFAULT_URL,
    namespace: options.Namespace = "default",
    as_json: options.Json = False,
) -> int:
    """One of them in full: its numbers, what has happened lately, and who has paused or resumed it."""
    output = Output(as_json=as_json)
    every, now_ms = asyncio.run(_read(url, namespace))
    found = next((each for each in every if each.name == name), None)
    if found is None:
        known = ", ".join(words.printable(each.name) for each in every) or "none"
        raise errors.UsageError(
            f"there is no dependency {words.printable(name)!r} in namespace {namespace!r}; there are: {known}"
        )
    if as_json:
        output.document(documents.dependency(found))
        return Exit.OK
    output.table((), [(Styled(each, "dim"), value) for each, value in _in_full(found, now_ms).items()])
    if found.changes:
        output.lines("")
        rows = [
            (words.moment(words.milliseconds(each.at), now_ms), _phase(each.phase), each.by or "", _line(each.reason))
            for each in found.changes
        ]
        output.table(("TIME", "CIRCUIT", "BY", "WHY"), rows)
    return Exit.OK


@dependencies.command("pause")
def pause_dependency(
    name: Name,
    *,
    reason: Why = "",
    url: options.Url = options.DEFAULT_URL,
    namespace: options.Namespace = "default",
    as_json: options.Json = False,
) -> int:
    """Have no attempt begin that depends on it, until `pledger dependency resume`.

    Attempts that are under way end, and what they bring is kept; all others wait.
    """
    output = Output(as_json=as_json)

    async def run() -> DependencySummary:
        async with opened(url, namespace) as client:
            return await client.pause_dependency(name, reason=reason)

    found = asyncio.run(run())
    if as_json:
        output.document(documents.dependency(found))
    else:
        shown = words.printable(name)
        output.lines(f"dependency {shown} is paused; to go on: pledger dependency resume {shlex.quote(shown)}")
    return Exit.OK


@dependencies.command("resume")
def resume_dependency(
    name: Name,
    *,
    reason: Why = "",
    at_once: Annotated[
        bool, typer.Option("--at-once", help="All attempts, instead of one first and more while they succeed.")
    ] = False,
    url: options.Url = options.DEFAULT_URL,
    namespace: options.Namespace = "default",
    as_json: options.Json = False,
) -> int:
    """Have attempts begin again, whether somebody has paused it or its circuit breaker is open."""
    output = Output(as_json=as_json)

    async def run() -> DependencySummary:
        async with opened(url, namespace) as client:
            return await client.resume_dependency(name, reason=reason, at_once=at_once)

    found = asyncio.run(run())
    if as_json:
        output.document(documents.dependency(found))
    elif found.limit is not None:
        output.lines(f"dependency {words.printable(name)} is tried with {found.limit:,} at a time, then with more")
    else:
        output.lines(f"dependency {words.printable(name)} goes on")
    return Exit.OK


def _phase(phase: str) -> Styled:
    return Styled(phase.replace("_", " "), _STYLES[phase])


def _line(text: str) -> str:
    return words.one_line(text, _LINE_CHARS)


async def _read(url: str, namespace: str) -> tuple[tuple[DependencySummary, ...], int]:
    async with opened(url, namespace) as client:
        return await client.dependencies(), words.milliseconds(await client.now())


def _row(found: DependencySummary, now_ms: int, cell: int) -> tuple[Words, ...]:
    since = words.moment(words.milliseconds(found.since), now_ms)
    counts = (f"{found.calls:,}", f"{found.retries:,}", f"{found.failed:,}")
    why = f"by {found.by}: {found.reason}" if found.by else found.reason
    return (words.one_line(found.name, cell), _phase(found.phase), since, *counts, words.one_line(why, cell))


def _in_full(found: DependencySummary, now_ms: int) -> dict[str, Words]:
    since = words.moment(words.milliseconds(found.since), now_ms)
    window = words.duration(found.window.total_seconds() * 1000)
    pairs: dict[str, Words] = {
        "dependency": Styled(words.printable(found.name), "bold"),
        "circuit": _phase(found.phase),
        "since": since + (f", by {words.printable(found.by)}" if found.by else ""),
        "why": _line(found.reason),
        "tries": "" if found.until is None else words.moment(words.milliseconds(found.until), now_ms),
        "at a time": "" if found.limit is None else f"{found.limit:,}",
        f"last {window}": f"{found.calls:,} calls, {found.retries:,} retries; {found.succeeded:,} succeeded, "
        f"{found.failed:,} failed",
        "last failure": _line(found.last_failure),
        "budget": f"{found.ratio:g} of a retry for each call and {found.minimum_per_second:g} a second; "
        f"{found.retries_left:,} left",
        "breaker": "" if found.has_breaker else "none",
        "activities": ", ".join(map(words.printable, found.activity_types)),
    }
    return {name: value for name, value in pairs.items() if value}
