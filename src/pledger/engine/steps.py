"""Attempts that run in a transaction of the ledger's database, which records their result too.

Such an attempt always has a task row, and the row alone decides: its transaction commits only if the row is still
started, at this attempt, by this session, and makes it done in the same breath. So whatever else becomes of the attempt
(a time-out, a lost lease, the end of its run, a lost answer) either comes first, and nothing of the transaction stays,
or comes too late. Nothing about it may go past the row: see `Activities`.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from pledger.engine.port.answers import Reply
from pledger.engine.port.operations import FinishTask
from pledger.engine.task_rows import encode_record
from pledger.history.events import ActivityCompleted

if TYPE_CHECKING:
    from pledger.engine.attempt import Attempt
    from pledger.engine.port.transactions import BlockingTransaction, Transaction
    from pledger.engine.port.verbs import Store
    from pledger.engine.session import LedgerClock

T = TypeVar("T")


class Recorded(NamedTuple):
    """The end of an attempt whose outcome is in its row (WON), or that was not its row's any more (LOST)."""

    reply: Reply
    outcome: ActivityCompleted


class Unkept(NamedTuple):
    """The end of one whose result cannot be kept, which was rolled back. error: why."""

    error: Exception


#: Gives the encoded result of an attempt. Raises what user code raises in it, and PayloadError.
Encode: TypeAlias = Callable[["Attempt", Any], bytes]


class Steps:
    """urls: of the transactions, by their names; None for one that is as the store itself."""

    def __init__(self, store: Store, urls: Mapping[str, str | None], clock: LedgerClock, encode: Encode) -> None:
        self._store = store
        self._urls = urls
        self._clock = clock
        self._encode = encode

    def code_of(self, attempt: Attempt) -> Callable[..., Any]:
        """What is to run in place of the activity's function, where that would run. Gives Recorded or Unkept.

        Raises UsageError when the ledger has no transactions.
        """
        name = attempt.definition.transaction
        assert name is not None
        url, open_max_s = self._urls.get(name), self._seconds_left(attempt)
        if attempt.definition.executor == "async":
            return functools.partial(self._run, attempt, self._store.transaction(url, open_max_s=open_max_s))
        return functools.partial(self._block, attempt, self._store.blocking_transaction(url, open_max_s=open_max_s))

    def _seconds_left(self, attempt: Attempt) -> float | None:
        if attempt.deadline_ms is None:
            return None
        return max(1, attempt.deadline_ms - self._clock.now_ms()) / 1000

    async def _run(self, attempt: Attempt, transaction: Transaction, *args: Any, **keywords: Any) -> Recorded | Unkept:
        try:
            await transaction.open()
            attempt.connection = transaction.connection
            result = await attempt.definition.fn(*args, **keywords)
            try:
                encoded = self._encode(attempt, result)
            except Exception as error:  # noqa: BLE001 - user code may run in it
                return Unkept(error)
            outcome = ActivityCompleted(attempt.event_id, encoded, attempt.number)
            # From here on it is the database's to say what becomes of it, and no longer a time-out's.
            return Recorded(await _to_its_end(transaction.finish(_finish(attempt, outcome))), outcome)
        finally:
            attempt.connection = None
            await _to_its_end(transaction.close())

    def _block(self, attempt: Attempt, transaction: BlockingTransaction, *args: Any, **keywords: Any) -> Any:
        try:
            transaction.open()
            attempt.connection = transaction.connection
            result = attempt.definition.fn(*args, **keywords)
            try:
                encoded = self._encode(attempt, result)
            except Exception as error:  # noqa: BLE001 - as above
                return Unkept(error)
            outcome = ActivityCompleted(attempt.event_id, encoded, attempt.number)
            return Recorded(transaction.finish(_finish(attempt, outcome)), outcome)
        finally:
            attempt.connection = None
            transaction.close()


def _finish(attempt: Attempt, outcome: ActivityCompleted) -> FinishTask:
    row = attempt.row
    assert row is not None
    assert row.owner is not None, "it was claimed"
    return FinishTask(attempt.run_key, attempt.event_id, attempt.number, row.owner, encode_record(outcome))


async def _to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Whoever cancels meanwhile waits for it, and has come too late if it goes well."""
    try:
        task = asyncio.get_running_loop().create_task(work)
    except RuntimeError:
        work.close()  # it is thrown away, and its loop has ended
        raise
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            continue
    return task.result()
