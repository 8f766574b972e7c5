"""Transactions that hold a user's own statements beside what the store writes: committed together or not at all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from pledger.engine.port.answers import Answer, Reply
from pledger.engine.port.operations import FinishTask, StartRun


class Transaction(Protocol):
    """One of them, of asynchronous code. connection: what the user's statements are made with, once it is open."""

    connection: Any

    async def open(self) -> None:
        """Raises StoreError."""
        ...

    async def commit(self) -> None:
        """Raises StoreUnavailableError when nothing of it is there, or nobody knows."""
        ...

    async def finish(self, finish: FinishTask) -> Reply:
        """Commit it with the outcome of an attempt: WON; or LOST, and then nothing of it stays.

        Raises StoreUnavailableError when nobody knows: the row says what became of it.
        """
        ...

    async def close(self) -> None:
        """Roll back what is not committed."""
        ...


class BlockingTransaction(Protocol):
    """The same for code in a thread."""

    connection: Any

    def open(self) -> None: ...
    def commit(self) -> None: ...
    def finish(self, finish: FinishTask) -> Reply: ...
    def close(self) -> None: ...


class Transactions(Protocol):
    """url: as which user and with which settings; None: as the store itself. It is always the ledger's own database.
    open_max_s: the longest that it may take; a store may allow less."""

    async def join(self, connection: object, operation: StartRun) -> Answer:
        """Write a start in the transaction that the user has open on `connection`: it is there once that is committed,
        and nobody hears of it before.

        Raises UsageError for what is no transaction on this ledger's database, StoreError when the database refuses;
        the user's transaction then goes on as if nothing had been asked.
        """
        ...

    def transaction(self, url: str | None = None, *, open_max_s: float | None = None) -> Transaction: ...

    def blocking_transaction(self, url: str | None = None, *, open_max_s: float | None = None) -> BlockingTransaction:
        """To be made on the loop, and used in a thread."""
        ...

    async def prepare_transactions(self, urls: Iterable[str | None], count: int) -> None:
        """There will be transactions on these, so many at a time.

        Raises UsageError for a URL that is not of the ledger's own database.
        """
        ...
