"""What is done again when a connection is lost, or others are in the way; and what is looked up before."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol, TypeVar

import psycopg

from pledger.engine.port.answers import Answer
from pledger.engine.port.operations import Operation
from pledger.errors import StoreError, StoreUnavailableError
from pledger.store.postgres.commit import TRIES, Committer, StillRunningError
from pledger.store.postgres.failures import PASSING, is_of_the_connection
from pledger.store.postgres.links import STATEMENT_TIMEOUT_S

T = TypeVar("T")

#: Before a batch is written again whose connection was lost, in seconds.
_AGAIN_S: Final = 0.05

#: A transaction of ours is over by then after its connection was lost, in seconds: the server ends it.
_OUTLIVES_S: Final = STATEMENT_TIMEOUT_S + 1.0


class Connects(Protocol):
    """Gives a connection to use, see `Link`. Raises StoreError for whatever the server says."""

    def use(self) -> AbstractAsyncContextManager[psycopg.AsyncConnection[Any]]: ...


async def write_patiently(
    committer: Committer,
    link: Connects,
    batch: Sequence[Operation],
    *,
    patience_s: float,
    monotonic: Callable[[], float] = time.monotonic,
) -> list[Answer]:
    """A connection that is lost meanwhile is no fault of the batch: what became of that is looked up, and if it is not
    there it is written again."""
    deadline_s = monotonic() + patience_s
    doubt, over_s = None, deadline_s
    while True:
        try:
            async with link.use() as connection:
                if doubt is not None:
                    answers = await committer.resolve(connection, doubt)
                    if answers is not None:
                        return answers
                    doubt = None
                return await committer.write(connection, batch)
        except StillRunningError:
            # It is somewhere between here and the disk: until that is over nobody can say anything. After a fail-over
            # its id may be that of somebody else's transaction, which may stay open for hours.
            if monotonic() >= over_s:
                raise
        except StoreError as error:
            if committer.doubt is not None:
                doubt, committer.doubt, over_s = committer.doubt, None, monotonic() + _OUTLIVES_S
            passing = doubt is not None or is_of_the_connection(error.__cause__)
            if not passing or monotonic() >= deadline_s:
                # Whatever is wrong with the server is no fault of the runs: they wait until it is mended.
                raise StoreUnavailableError(error.message) from error.__cause__
        await asyncio.sleep(_AGAIN_S)


async def until_nobody_is_in_the_way(work: Callable[[], Awaitable[T]]) -> T:
    """Again, while others are in the way: nothing of it was written."""
    for _ in range(TRIES - 1):
        try:
            return await work()
        except StoreUnavailableError as error:
            if not isinstance(error.__cause__, PASSING):
                raise
    return await work()
