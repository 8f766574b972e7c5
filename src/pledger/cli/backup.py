"""`pledger backup`: a copy of the ledger while everybody works on it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from pledger.cli import options
from pledger.cli.exits import Exit
from pledger.cli.ledger import opened
from pledger.cli.output import Output
from pledger.cli.progress import Progress


def backup(
    destination: Annotated[Path, typer.Argument(metavar="DEST", help="The new file; one that is there is refused.")],
    *,
    url: options.Url = options.DEFAULT_URL,
    namespace: options.Namespace = "default",
    as_json: options.Json = False,
) -> int:
    """Copy the whole ledger, all namespaces, as it is at one instant. Workers and clients go on meanwhile.

    The copy is one file, a ledger by itself, with mode 0600; it is checked and on the disk before it gets its name.
    """
    output = Output(as_json=as_json)

    async def run() -> int:
        async with opened(url, namespace) as client:
            with Progress(output, f"copying to {destination}"):
                return await client.back_up(destination)

    size = asyncio.run(run())
    if as_json:
        output.document({"path": str(destination.absolute()), "size_bytes": size})
    else:
        output.lines(f"{destination} is a copy of the ledger, {size:,} bytes; its URL is sqlite:///{destination}")
    return Exit.OK
