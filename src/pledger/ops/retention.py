"""Retention by hand: what may go, and removing it, at once or after it was written to an archive.

Workers do the same by themselves (`pledger.engine.sweeper`), of the types that they know. Here a person says what goes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from pledger.client import Client
from pledger.engine.port.retention import FROM_THE_START, Finished, in_batches
from pledger.errors import CorruptHistoryError, NoLongerKeptError
from pledger.history.times import milliseconds
from pledger.ops.archive import Archive, archive_row

#: Chains that are looked at in one go, forgotten in one transaction, and their events in that.
PAGE: Final = 1_000
CHAINS_MAX: Final = 200
EVENTS_MAX: Final = 4_000
#: Rows of a long history that go in one transaction.
ROWS_MAX: Final = 4_000


@dataclass(slots=True)
class Removed:
    """chains: how many went, or would. runs: how many runs of them went. held: those that stay for signals that nobody
    took. damaged: those that stay since they cannot be archived. by_type: chains of each workflow type."""

    chains: int = 0
    runs: int = 0
    held: int = 0
    damaged: list[CorruptHistoryError] = field(default_factory=list)
    by_type: dict[str, int] = field(default_factory=dict)


async def what_may_go(
    client: Client, older_than: timedelta, types: Sequence[str] = (), *, undelivered: bool = False
) -> Removed:
    """What `prune` would remove; nothing is changed."""
    found = Removed()
    async for workflow_type, page in _pages(client, older_than, types):
        held = 0 if undelivered else sum(chain.undelivered for chain in page)
        _count(found, workflow_type, len(page) - held, held)
    return found


async def prune(
    client: Client,
    older_than: timedelta,
    types: Sequence[str] = (),
    *,
    undelivered: bool = False,
    archive: Archive | None = None,
    progress: Callable[[], None] = lambda: None,
) -> Removed:
    """Forget chains that have been finished for longer than `older_than`; ids are remembered.

    types: of these workflow types; of all by default. undelivered: also those with signals that nobody took. archive:
    each batch is written there, and is on the disk, before it goes; what is damaged cannot be and stays. progress: told
    of each chain that went.

    As much time as a batch takes passes before the next one, so that other writers have at least half of it.
    """
    removed, keep_ms, store = Removed(), milliseconds(older_than), client.internals.store
    async for workflow_type, page in _pages(client, older_than, types):
        _count(removed, workflow_type, 0, 0 if undelivered else sum(chain.undelivered for chain in page))
        for batch in in_batches(page, CHAINS_MAX, EVENTS_MAX, undelivered=undelivered):
            chains = [chain.chain_key for chain in batch]
            if archive is not None:
                chains = await _archive(client, archive, chains, removed)
            began_s = time.monotonic()
            removed.runs += await store.forget_chains(chains, keep_ms)
            _count(removed, workflow_type, len(chains), 0)
            for _ in chains:
                progress()
            await asyncio.sleep(time.monotonic() - began_s)
    while await store.drop_leftovers(ROWS_MAX):  # noqa: ASYNC110 - it waits for nobody, it gives way
        await asyncio.sleep(0)
    return removed


async def _pages(
    client: Client, older_than: timedelta, types: Sequence[str]
) -> AsyncIterator[tuple[str, list[Finished]]]:
    store, namespace = client.internals.store, client.internals.namespace
    for workflow_type in types or await store.finished_types(namespace):
        place = FROM_THE_START
        while page := await store.finished_chains(namespace, workflow_type, milliseconds(older_than), place, PAGE):
            place = page[-1].place
            yield workflow_type, page


async def _archive(client: Client, archive: Archive, chain_keys: Sequence[int], removed: Removed) -> list[int]:
    """The chains that are now in the archive whole."""
    kept: set[int] = set()
    for row in await client.internals.store.chain_runs(chain_keys):
        try:
            problem = await archive_row(client, archive, row)
        except NoLongerKeptError:
            continue  # a worker was faster
        if problem is not None:
            removed.damaged.append(problem)
            kept.add(row.chain_key)
    archive.sync()
    return [chain_key for chain_key in chain_keys if chain_key not in kept]


def _count(removed: Removed, workflow_type: str, chains: int, held: int) -> None:
    removed.chains += chains
    removed.held += held
    if chains:
        removed.by_type[workflow_type] = removed.by_type.get(workflow_type, 0) + chains
