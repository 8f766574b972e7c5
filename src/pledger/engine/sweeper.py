"""Retention in the workers: what has been finished for long enough is forgotten, a little at a time.

Workers sweep only types that they have the code of: how long their runs are kept stands there. Types that are kept for
equally long are one chore, however many they are, and of all workers that share it one does it. Batches are small, and
between two of them is a pause, so that no writer waits for long and the rate has a bound.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from pledger.engine.port.retention import FROM_THE_START, in_batches
from pledger.errors import StoreError
from pledger.history.times import milliseconds

if TYPE_CHECKING:
    from pledger.engine.port.verbs import Store
    from pledger.machine.definitions import WorkflowDefinition

logger = logging.getLogger("pledger.engine")

#: Between two sweeps of the same types: a tenth of what their runs are kept, within these bounds, in seconds.
REST_S: Final = (1.0, 600.0)
#: How long a worker has the chore without saying that it still does it; longer than any batch takes.
HOLD_MS: Final = 60_000
#: Chains that are looked at in one go, forgotten in one transaction, and their events in that.
PAGE: Final = 500
CHAINS_MAX: Final = 100
EVENTS_MAX: Final = 2_000
#: Rows of a long history that go in one transaction.
ROWS_MAX: Final = 2_000
#: Between two transactions, in seconds. With the above, at most 2,000 runs a second.
PAUSE_S: Final = 0.05


def keeps(definitions: Iterable[WorkflowDefinition], default_ms: int | None) -> dict[str, int]:
    """How long finished runs of each type are kept, in ms; without those that are kept for ever."""
    found = {}
    for definition in definitions:
        retention = definition.retention
        keep_ms = default_ms if retention is None else None if retention == timedelta.max else milliseconds(retention)
        if keep_ms is not None:
            found[definition.name] = keep_ms
    return found


class Chore(NamedTuple):
    """Types that are kept for equally long. name: the same for all workers that have the same ones."""

    name: str
    types: tuple[str, ...]
    keep_ms: int

    @property
    def rest_s(self) -> float:
        """How long they are let alone after a sweep."""
        least, most = REST_S
        return min(most, max(least, self.keep_ms / 10_000))


def chores(keeps: Mapping[str, int]) -> list[Chore]:
    """keeps: as `keeps` gives it."""
    found = []
    for keep_ms in sorted(set(keeps.values())):
        types = tuple(sorted(name for name in keeps if keeps[name] == keep_ms))
        found.append(Chore(_named(types), types, keep_ms))
    return found


def _named(types: Sequence[str]) -> str:
    if len(types) == 1:
        return f"retention of {types[0]}"
    # Names may be long, and many: a digest of them fits a row.
    digest = hashlib.blake2b("\0".join(types).encode(), digest_size=8).hexdigest()
    return f"retention of {len(types)} types ({digest})"


class Sweeper:
    """keeps: as `keeps` gives it. session_key: of the worker's session, 0 while it has none."""

    def __init__(
        self,
        store: Store,
        loop: asyncio.AbstractEventLoop,
        randomness: random.Random,
        *,
        session_key: Callable[[], int],
        namespace: str,
        keeps: Mapping[str, int],
    ) -> None:
        self._store = store
        self._loop = loop
        self._random = randomness
        self._session_key = session_key
        self._namespace = namespace
        self._chores = chores(keeps)
        self._task: asyncio.Task[None] | None = None
        self._duty: tuple[str, int] | None = None

    def start(self) -> None:
        if self._chores:
            self._task = self._loop.create_task(self._run(), name="pledger-sweeper")

    async def stop(self) -> None:
        """At once: what is not swept now is swept later, by somebody else if there is one."""
        if self._task is None:
            return
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        if self._duty is not None:
            with contextlib.suppress(StoreError):  # then it is free once it is not held any more
                await self._store.leave_duty(self._namespace, *self._duty, 0)

    async def _run(self) -> None:
        next_s = {chore: self._loop.time() + self._jittered(chore.rest_s) for chore in self._chores}
        while True:
            chore = min(next_s, key=lambda each: next_s[each])
            await asyncio.sleep(max(0.0, next_s[chore] - self._loop.time()))
            try:
                await self._sweep_if_due(chore)
            except StoreError as error:
                # What is wrong with the store others tell loudly; this can wait for ever.
                logger.debug("%s waits: %s", chore.name, error)
            except Exception:
                logger.exception("%s failed; it goes on", chore.name)
            # A worker that does not get the chore asks as often as the one that does it: so it is done, whoever dies.
            next_s[chore] = self._loop.time() + chore.rest_s * 0.5 + self._jittered(chore.rest_s)

    async def _sweep_if_due(self, chore: Chore) -> None:
        session_key = self._session_key()
        if not session_key:
            return
        # Before it is ours: a stop that comes while the answer is on its way has to give it back all the same.
        self._duty = chore.name, session_key
        if not await self._store.take_duty(self._namespace, chore.name, session_key, HOLD_MS):
            self._duty = None
            return
        await self._sweep_all(chore, session_key)
        if self._duty is None:
            return
        while await self._store.drop_leftovers(ROWS_MAX):  # noqa: ASYNC110 - it waits for nobody, it gives way
            await asyncio.sleep(PAUSE_S)
        await self._store.leave_duty(self._namespace, chore.name, session_key, int(chore.rest_s * 1000))
        self._duty = None

    async def _sweep_all(self, chore: Chore, session_key: int) -> None:
        types = chore.types
        if len(types) > 1:
            # One question in place of one for each type: of most there is nothing to forget.
            types = tuple(await self._store.finished_types(self._namespace))
        for name in types:
            if name in chore.types and self._duty is not None:
                forgotten = await self._sweep(name, chore, session_key)
                if forgotten:
                    logger.info("retention has removed %d runs of %s", forgotten, name)

    async def _sweep(self, name: str, chore: Chore, session_key: int) -> int:
        place, forgotten = FROM_THE_START, 0
        while page := await self._store.finished_chains(self._namespace, name, chore.keep_ms, place, PAGE):
            place = page[-1].place
            for batch in in_batches(page, CHAINS_MAX, EVENTS_MAX):
                forgotten += await self._store.forget_chains([each.chain_key for each in batch], chore.keep_ms)
                await asyncio.sleep(PAUSE_S)
            if not await self._store.take_duty(self._namespace, chore.name, session_key, HOLD_MS):
                self._duty = None  # it took too long, and somebody else does it now
                break
        return forgotten

    def _jittered(self, seconds: float) -> float:
        return seconds * self._random.random()
