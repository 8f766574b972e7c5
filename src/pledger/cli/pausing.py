"""`pledger pause`, `pledger resume`, `pledger paused`."""

from __future__ import annotations

import asyncio
import shlex
from enum import StrEnum
from typing import Annotated, Literal, TypeAlias

import typer

from pledger import errors
from pledger.cli import documents, options, words
from pledger.cli.exits import Exit
from pledger.cli.ledger import find_run, opened
from pledger.cli.output import Output, Styled, Words
from pledger.client import PauseSummary


class Kind(StrEnum):
    RUN = "run"
    TYPE = "type"
    QUEUE = "queue"
    NAMESPACE = "namespace"


What: TypeAlias = Annotated[Kind, typer.Argument(help="What NAME is: a workflow id, type, task queue or namespace.")]
Name: TypeAlias = Annotated[
    str, typer.Argument(metavar="[NAME]", help="Of a namespace: --namespace by default.", show_default=False)
]
RunId: TypeAlias = options.RunId


def pause(
    kind: What,
    name: Name = "",
    *,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Shown with it.", show_default=False)] = "",
    run_id: RunId = None,
    url: options.Url = options.DEFAULT_URL,
    namespace: options.Namespace = "default",
    as_json: options.Json = False,
) -> int:
    """Have a run stand still, or all of a workflow type, a task queue or a namespace, until `pledger resume`.

    Attempts that are under way end and what they bring is kept; none begins, and no run goes on. Starts and messages
    are accepted and wait.
    """
    output = Output(as_json=as_json)
    place = _place(kind, name, namespace)

    async def run() -> PauseSummary:
        async with opened(url, place) as client:
            if kind == Kind.RUN:
                return await (await find_run(client, _named(kind, name), run_id)).pause(reason)
            return await client.pause(_of_places(kind), name, reason=reason)

    found = asyncio.run(run())
    if as_json:
        output.document(documents.pause(found))
    else:
        output.lines(f"{_what(found)} is paused; to go on: {_resume_command(found)}")
    return Exit.OK


def resume(
    kind: What,
    name: Name = "",
    *,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate",
            metavar="N",
            help="Let at most N runs, or activities that wait, a second go on until all that waits now has.",
            show_default="all at once",
        ),
    ] = None,
    run_id: RunId = None,
    url: options.Url = options.DEFAULT_URL,
    namespace: options.Namespace = "default",
    as_json: options.Json = False,
) -> int:
    """Have what was paused go on, at once or little by little."""
    output = Output(as_json=as_json)
    place = _place(kind, name, namespace)

    async def run() -> PauseSummary | None:
        async with opened(url, place) as client:
            if kind != Kind.RUN:
                return await client.resume(_of_places(kind), name, rate=rate)
            if rate is not None:
                raise errors.UsageError("--rate is for what has many runs; one run goes on at once")
            return await (await find_run(client, _named(kind, name), run_id)).resume()

    found = asyncio.run(run())
    if as_json:
        output.document({"resumed": None if found is None else documents.pause(found)})
    elif found is None:
        output.note(f"{kind} {name or place} is not paused; `pledger paused` shows what is")
    else:
        pace = "" if rate is None else f", {rate:g} a second; `pledger paused` shows how far it is"
        output.lines(f"{_what(found)} goes on{pace}")
    return Exit.OK


def paused(
    *, url: options.Url = options.DEFAULT_URL, namespace: options.Namespace = "default", as_json: options.Json = False
) -> int:
    """What is paused, who said so, why, and since when."""
    output = Output(as_json=as_json)

    async def read() -> tuple[tuple[PauseSummary, ...], int]:
        async with opened(url, namespace) as client:
            return await client.pauses(), words.milliseconds(await client.now())

    found, now_ms = asyncio.run(read())
    if as_json:
        output.document({"pauses": [documents.pause(each) for each in found]})
    elif found:
        headers = ("KIND", "NAME", "SINCE", "BY", "STATE", "REASON")
        output.table(headers, [_row(each, now_ms, output.cell_chars_max) for each in found])
    else:
        output.note("nothing is paused")
    return Exit.OK


def _row(pause: PauseSummary, now_ms: int, cell: int) -> tuple[Words, ...]:
    state = "paused" if pause.rate is None else f"{pause.released:,} of {pause.backlog:,} went on, {pause.rate:g}/s"
    since = words.moment(words.milliseconds(pause.since), now_ms)
    reason = words.one_line(pause.reason, cell)
    return (pause.kind, pause.name, since, pause.paused_by, Styled(state, "yellow"), reason)


def _place(kind: Kind, name: str, namespace: str) -> str:
    """The namespace that it is about."""
    return name or namespace if kind == Kind.NAMESPACE else namespace


def _named(kind: Kind, name: str) -> str:
    if not name:
        raise errors.UsageError(f"name the {kind} that is meant: pledger pause {kind} NAME")
    return name


def _of_places(kind: Kind) -> Literal["type", "queue", "namespace"]:
    assert kind != Kind.RUN
    return kind.value  # type: ignore[return-value] # the rest of them


def _what(pause: PauseSummary) -> str:
    return f"{pause.kind} {words.printable(pause.name)}"


def _resume_command(pause: PauseSummary) -> str:
    return f"pledger resume {pause.kind} {shlex.quote(words.printable(pause.name))}"
