"""Transactions of users on the model of a server: each has a connection of its own, which may be lost at any statement,
and around its COMMIT."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import psycopg

from pledger.engine.port.answers import Reply
from pledger.engine.port.operations import FinishTask
from pledger.store.postgres.failures import store_failure
from pledger.testing.model_transactions import BlockingModelTransaction, ModelTransaction
from pledger.testing.server_links import ADDRESS, lost

if TYPE_CHECKING:
    from pledger.testing.server_ledger import ServerLedger, ServerStore


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Failures of statements that are not the user's."""
    try:
        yield
    except psycopg.Error as error:
        raise store_failure(error, ADDRESS) from error


class ServerTransaction(ModelTransaction):
    """open_max_s: the server ends it when it was open for so long."""

    def __init__(self, store: ServerStore, ledger: ServerLedger, open_max_s: float) -> None:
        super().__init__(store, ledger.tables)
        self._server = store
        self._ledger = ledger
        self._term = ledger.term
        self._ends_s = asyncio.get_running_loop().time() + open_max_s

    def _check(self) -> None:
        super()._check()
        if self._term != self._ledger.term:
            raise lost("the server is another one")
        if asyncio.get_running_loop().time() >= self._ends_s:
            raise lost("the transaction was open for too long")

    async def open(self) -> None:
        with _told():
            await super().open()

    async def finish(self, finish: FinishTask) -> Reply:
        with _told():
            return await super().finish(finish)

    def _settle(self, finish: FinishTask) -> Reply:
        """The connection may be lost while it is committed: then it is, some time later, or it is rolled back."""
        if not self._server.outlives("commit"):
            return super()._settle(finish)
        if self._server.toss():
            self._ledger.later(self._ledger.begin(), lambda: super(ServerTransaction, self)._settle(finish))
        raise lost("in the midst of a commit")


class BlockingServerTransaction(BlockingModelTransaction):
    """The same for code that is run as in a thread: no time passes in it."""

    def open(self) -> None:
        with _told():
            super().open()

    def finish(self, finish: FinishTask) -> Reply:
        with _told():
            return super().finish(finish)
