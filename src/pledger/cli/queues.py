"""`pledger queue`, `pledger limit`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Final, TypeAlias

import typer

from pledger import errors
from pledger.cli import documents, options, words
from pledger.cli.exits import Exit
from pledger.cli.ledger import opened
from pledger.cli.limits import parse_rate, rate_words
from pledger.cli.output import Output, Styled, Words
from pledger.client import LimitSummary, QueueSummary

queues: Final = typer.Typer(name="queue", help="Task queues: what waits in them, and who serves them.")
limits: Final = typer.Typer(name="limit", help="Limits that hold over all workers: show them, and set other numbers.")

Name: TypeAlias = Annotated[str, typer.Argument(metavar="NAME", help="Of the limit, as the code has it.")]

#: Keys of a limit that a table shows; --json has all that are read.
_KEYS_SHOWN: Final = 10


@queues.command("list")
def list_queues(
    *, url: options.Url = options.DEFAULT_URL, namespace: options.Namespace = "default", as_json: options.Json = False
) -> int:
    """How many activities wait in each task queue, since when, and how many workers serve it.

    Attempts that a worker starts straight after the commit of its own run never stand in a queue.
    """
    output = Output(as_json=as_json)

    async def read() -> tuple[tuple[QueueSummary, ...], int]:
        async with opened(url, namespace) as client:
            return await client.queues(), words.milliseconds(await client.now())

    found, now_ms = asyncio.run(read())
    if as_json:
        output.document({"queues": [documents.queue(each) for each in found]})
    elif found:
        headers = ("QUEUE", "WAITING", "OLDEST", "LATER", "RUNNING", "WORKERS")
        output.table(headers, [_queue_row(each, now_ms) for each in found], right=headers[1:2] + headers[3:])
    else:
        output.note("no activity waits, and no worker is there")
    return Exit.OK


def _queue_row(queue: QueueSummary, now_ms: int) -> tuple[Words, ...]:
    oldest = "" if queue.oldest is None else words.distance(words.milliseconds(queue.oldest), now_ms)
    workers = str(queue.workers)
    return (
        queue.task_queue,
        f"{queue.queued:,}",
        oldest,
        f"{queue.later:,}",
        f"{queue.started:,}",
        workers if queue.workers else Styled(workers, "yellow"),
    )


@limits.command("list")
def list_limits(
    *, url: options.Url = options.DEFAULT_URL, namespace: options.Namespace = "default", as_json: options.Json = False
) -> int:
    """The limits, their numbers, and what is in use of them; of one with keys the keys that are used most."""
    output = Output(as_json=as_json)

    async def read() -> tuple[LimitSummary, ...]:
        async with opened(url, namespace) as client:
            return await client.limits()

    found = asyncio.run(read())
    if as_json:
        output.document({"limits": [documents.limit(each) for each in found]})
    elif found:
        headers = ("LIMIT", "AT A TIME", "RATE", "KEY", "IN USE", "WAITING")
        rows = (row for each in found for row in _limit_rows(each, output.cell_chars_max))
        output.table(headers, rows, right=("AT A TIME", "RATE", "IN USE", "WAITING"))
        if any(each.overridden for each in found):
            output.lines(Styled("* set by an operator; `pledger limit reset NAME` goes back to the code's", "dim"))
    else:
        output.note("no worker has stated a limit yet, and none is set")
    return Exit.OK


def _limit_rows(limit: LimitSummary, cell: int) -> Iterator[tuple[Words, ...]]:
    name = words.one_line(limit.name, cell) + ("*" if limit.overridden else "")
    numbers = (
        "" if limit.concurrency is None else f"{limit.concurrency:,}",
        "" if limit.rate is None else rate_words(limit.rate, limit.per),
    )
    shown = limit.keys[:_KEYS_SHOWN]
    first = shown[0] if shown else None
    if first is None:
        yield (name, *numbers, "", "0", "0")
        return
    for key in shown:
        used = f"{key.used:,}"
        is_full = limit.concurrency is not None and key.used >= limit.concurrency
        yield (
            *((name, *numbers) if key is first else ("", "", "")),
            words.one_line(key.key, cell),
            Styled(used, "yellow") if is_full else used,
            f"{key.queued:,}",
        )
    if len(limit.keys) > len(shown):
        yield ("", "", "", Styled(f"… {len(limit.keys) - len(shown):,} more keys: --json", "dim"), "", "")


@limits.command("set")
def set_limit(
    name: Name,
    *,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", metavar="N", help="Attempts at a time.", show_default="the code's")
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option("--rate", metavar="N/PER", help="Starts: 50/s, 200/m, 3/1m30s.", show_default="the code's"),
    ] = None,
    url: options.Url = options.DEFAULT_URL,
    namespace: options.Namespace = "default",
    as_json: options.Json = False,
) -> int:
    """Have other numbers than the code's hold for a limit, from the next claim of every worker on.

    What runs already runs on. The numbers stay until `pledger limit reset`.
    """
    output = Output(as_json=as_json)
    count, per = (None, timedelta(seconds=1)) if rate is None else _rate(rate)

    async def run() -> LimitSummary:
        async with opened(url, namespace) as client:
            await client.set_limit(name, concurrency=concurrency, rate=count, per=per)
            return next(each for each in await client.limits() if each.name == name)

    found = asyncio.run(run())
    if as_json:
        output.document(documents.limit(found))
    else:
        output.lines(f"limit {words.printable(name)} is now {_numbers(found)}")
    return Exit.OK


@limits.command("reset")
def reset_limit(
    name: Name,
    *,
    url: options.Url = options.DEFAULT_URL,
    namespace: options.Namespace = "default",
    as_json: options.Json = False,
) -> int:
    """Have the numbers of the code hold again."""
    output = Output(as_json=as_json)

    async def run() -> tuple[bool, LimitSummary | None]:
        async with opened(url, namespace) as client:
            was_set = any(each.overridden for each in await client.limits() if each.name == name)
            await client.reset_limit(name)
            return was_set, next((each for each in await client.limits() if each.name == name), None)

    was_set, found = asyncio.run(run())
    if as_json:
        output.document({"reset": was_set, "limit": None if found is None else documents.limit(found)})
    elif not was_set:
        output.note(f"limit {words.printable(name)} had no numbers set; `pledger limit list` shows which have")
    elif found is None:
        output.lines(f"limit {words.printable(name)} is forgotten: no code states it")
    else:
        output.lines(f"limit {words.printable(name)} is {_numbers(found)} again, as its code says")
    return Exit.OK


def _rate(text: str) -> tuple[float, timedelta]:
    try:
        return parse_rate(text)
    except ValueError:
        raise errors.UsageError(f"--rate {text!r} is no rate: write 50/s, 200/m or 3/1m30s") from None


def _numbers(limit: LimitSummary) -> str:
    parts = []
    if limit.concurrency is not None:
        parts.append(f"{limit.concurrency:,} at a time")
    if limit.rate is not None:
        parts.append(rate_words(limit.rate, limit.per))
    return " and ".join(parts) or "without a bound"
