"""`pledger follow`."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Annotated

import typer

from pledger.cli import documents, options, words
from pledger.cli.ledger import find_run, opened
from pledger.cli.output import Output
from pledger.history import payloads


def follow(
    workflow_id: options.WorkflowId,
    *,
    topic: Annotated[
        str, typer.Option("--topic", "-t", metavar="TOPIC", help="What to follow; `pledger show` lists the topics.")
    ],
    from_offset: Annotated[
        int,
        typer.Option("--from", metavar="OFFSET", min=0, help="Where to begin: one more than the last one you have."),
    ] = 0,
    now: Annotated[bool, typer.Option("--now", help="Only what is there already.")] = False,
    run_id: options.RunId = None,
    url: options.Url = options.DEFAULT_URL,
    namespace: options.Namespace = "default",
    as_json: options.Json = False,
) -> int:
    """Print what a run publishes, what is there and what comes, until it has ended. With --json a document a line."""
    output = Output(as_json=as_json)

    async def run() -> None:
        async with opened(url, namespace) as client:
            handle = await find_run(client, workflow_id, run_id)
            items = handle.stream(topic, from_offset, follow=not now)
            async with contextlib.aclosing(items):
                async for item in items:
                    if as_json:
                        output.document(documents.stream_item(item))
                    else:
                        value = item.value if isinstance(item.value, str) else payloads.encode(item.value).decode()
                        source = f"  (attempt {item.attempt})" if item.attempt > 1 else ""
                        output.lines(f"{item.offset}  {words.printable(value)}{source}")

    asyncio.run(run())
    return 0
