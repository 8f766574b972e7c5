"""Opening the ledger for one command."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import importlib
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from pledger import errors
from pledger.cli.exits import NoLedgerError, WaitTimeoutError
from pledger.client import Client, WorkflowHandle, connect
from pledger.history import payloads
from pledger.history.sealing import PayloadCodec
from pledger.store import has_ledger

if TYPE_CHECKING:
    from pledger.metrics import Metrics

T = TypeVar("T")

#: Where the codecs of the ledger are: MODULE:ATTRIBUTE.
CODECS: Final = "PLEDGER_CODECS"
#: What a ledger may be at; another URL is told when it is opened.
_OPENED: Final = ("sqlite:///", "postgresql://", "postgres://")

#: A run id: 26 characters of Crockford's alphabet. What looks like one may be given in place of a workflow id.
_RUN_ID_CHARS: Final = frozenset("0123456789ABCDEFGHJKMNPQRSTVWXYZ")
_RUN_ID_LENGTH: Final = 26


@contextlib.asynccontextmanager
async def opened(
    url: str,
    namespace: str,
    *,
    may_create: bool = False,
    durability: str = "power",
    payload_bytes_max: int = payloads.PAYLOAD_BYTES_MAX,
    metrics: Metrics | None = None,
) -> AsyncIterator[Client]:
    """The client of the command's ledger.

    may_create: a missing file is made, for commands that bring the first content. The others refuse: an empty ledger
    made at a mistyped place would answer "no such run" for ever.
    Raises NoLedgerError, UsageError for a ledger that no other process could see.
    """
    if url.startswith("memory:"):
        raise errors.UsageError(f"{url} lives within one process, where no command can reach it; use a file: --url")
    if not may_create and url.startswith(_OPENED) and not await has_ledger(url):
        file = ledger_file(url)
        place = "" if file is None else f" ({file.absolute()})"
        raise NoLedgerError(
            f"there is no ledger at {shown(url)}{place}. Name another with --url or PLEDGER_URL, or make this "
            "one: `pledger worker` and `pledger start` do it"
        )
    async with connect(
        url,
        namespace=namespace,
        durability=durability,
        payload_bytes_max=payload_bytes_max,
        token_keys=_token_keys(),
        metrics=metrics,
        codecs=configured_codecs(),
    ) as client:
        yield client


def _token_keys() -> list[bytes]:
    """Those of PLEDGER_TOKEN_KEYS, in base64, with commas between them: see `connect(token_keys=...)`.

    Raises UsageError. Of the environment and not of the command line, where everybody on the machine could read them.
    """
    given = os.environ.get("PLEDGER_TOKEN_KEYS", "")
    try:
        return [base64.b64decode(each, validate=True) for each in given.split(",") if each.strip()]
    except binascii.Error:
        raise errors.UsageError("PLEDGER_TOKEN_KEYS is not base64; it has keys with commas between them") from None


def configured_codecs() -> Sequence[PayloadCodec]:
    """What PLEDGER_CODECS names: the chain that programs of this ledger give to `connect`, where it stands in their
    code. Raises UsageError."""
    named = os.environ.get(CODECS, "")
    if not named:
        return ()
    module, _, attribute = named.partition(":")
    if (here := str(Path.cwd())) not in sys.path:  # as for --app
        sys.path.insert(0, here)
    try:
        found = getattr(importlib.import_module(module), attribute or "codecs")
    except (ImportError, AttributeError, ValueError) as error:
        raise errors.UsageError(
            f"{CODECS}={named!r} names no codecs ({error}): give MODULE:ATTRIBUTE, a list of codecs or a function "
            "that gives one"
        ) from error
    chain: Sequence[PayloadCodec] = found() if callable(found) else found
    return chain


def shown(url: str) -> str:
    """The URL without a password."""
    return re.sub(r"//[^/@]*@", "//", url)


def ledger_file(url: str) -> Path | None:
    """The file that a SQLite URL names, or None for another URL."""
    scheme, _, rest = url.partition(":///")
    path = rest.partition("?")[0]
    return Path(path) if scheme == "sqlite" and path else None


async def find_run(client: Client, name: str, run_id: str | None = None) -> WorkflowHandle[None]:
    """The handle of a run, by its workflow id or its run id. Raises WorkflowNotFoundError at the first use of it."""
    if run_id is None and len(name) == _RUN_ID_LENGTH and _RUN_ID_CHARS.issuperset(name):
        async for found in client.list(f"run_id = '{name}'", limit=1):
            return client.handle(found.workflow_id, run_id=found.run_id)
    return client.handle(name, run_id=run_id)


async def within(timeout: timedelta | None, waiting: Awaitable[T], what: str) -> T:
    """Wait, at most so long; None is without end. Raises WaitTimeoutError naming what was waited for."""
    limit = asyncio.timeout(None if timeout is None else timeout.total_seconds())
    try:
        async with limit:
            return await waiting
    except TimeoutError:
        if timeout is None or not limit.expired():
            raise
        raise WaitTimeoutError(
            f"{what} has not closed within {timeout.total_seconds():g} s and goes on; "
            "`pledger show` tells what it waits for"
        ) from None
