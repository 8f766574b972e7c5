"""Reference workflows of a shop whose table lies in the ledger's own database, and whose bank wants a key.

What is sold is a row of that table, written by a step in the transaction that records its result, or together with the
start of a run. The table lets everything in twice; what is in it is held against the histories.

Apart from the others: a worker that knows such activities is told of the transaction, and where secrets are.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol

import apsw

from pledger import RetryPolicy, Secret, activity, workflow
from pledger.engine.attempt import running
from pledger.engine.task_rows import decode_outcome
from pledger.errors import ActivityError, StoreUnavailableError
from pledger.history.events import ActivityCompleted, ActivityFailed
from tests.reference.activities import QUICK, step

if TYPE_CHECKING:
    from pledger import WorkflowHandle
    from pledger.machine.definitions import ActivityDefinition
    from pledger.store.memory import State
    from pledger.testing.audit import Auditor
    from pledger.testing.records import Record

TABLE: Final = "sold"
_MAKE: Final = f"CREATE TABLE IF NOT EXISTS {TABLE} (run_id TEXT, event_id INTEGER, attempt INTEGER, what TEXT)"
_INSERT: Final = f"INSERT INTO {TABLE} VALUES (?, ?, ?, ?)"
TRANSACTIONS: Final = {"shop": None}
#: In the place of an event, of what was written with the start of its run.
WITH_START: Final = 0

TWICE: Final = RetryPolicy(initial_interval=timedelta(seconds=0.2), maximum_attempts=2)
KEY: Final = "bank-key"
VALUE: Final = 'open "sesame" 7f3a9b2c41'
#: What the value is looked for as: as it is, and as texts commonly give it.
FORMS: Final = (VALUE, json.dumps(VALUE)[1:-1], repr(VALUE)[1:-1], base64.b64encode(VALUE.encode()).decode())


class Vault:
    """Where the bank's key is."""

    def resolve(self, name: str) -> str | None:
        return VALUE if name == KEY else None


def _row(what: str) -> tuple[str, int, int, str]:
    attempt = running.get()
    return attempt.identity.run_id, attempt.event_id, attempt.number, what


async def _write(what: str) -> str:
    connection = activity.connection()
    await asyncio.sleep(0.3)  # time enough to die in, or to lose the row
    await connection.execute(_MAKE)
    try:
        await connection.execute(_INSERT, _row(what))
    except Exception:  # noqa: BLE001 - what failed is tried once more: in what is left of the transaction, if anything is
        await connection.execute(_INSERT, _row(what))
    await asyncio.sleep(0.02)
    return f"{what}-row"


@activity.defn(retry_policy=QUICK, transaction="shop")
async def sell(what: str) -> str:
    return await _write(what)


@activity.defn(retry_policy=TWICE, transaction="shop", start_to_close_timeout=timedelta(seconds=2))
async def sell_in_time(what: str) -> str:
    """A slow ledger meets its time-out, and may do so both times."""
    return await _write(what)


@activity.defn(retry_policy=QUICK, transaction="shop")
async def sell_at_last(what: str) -> str:
    """Fails once, when the row is written already: it must not stay."""
    receipt = await _write(what)
    if activity.info().attempt == 1:
        raise ConnectionError(f"{what}: not yet")
    return receipt


@activity.defn(retry_policy=QUICK, transaction="shop", secrets=[KEY])
def settle(what: str) -> str:
    """In a thread, and with the bank's key. The first attempt tells it to everybody, and fails."""
    connection, value = activity.connection(), activity.secret(KEY)
    connection.execute(_MAKE)
    connection.execute(_INSERT, _row(what))
    if activity.info().attempt == 1:
        raise ConnectionError(f"{what}: the bank did not take {value!r}")
    return f"{what}-row"


@activity.defn(retry_policy=QUICK, secrets=[KEY], heartbeat_timeout=timedelta(seconds=30))
async def pay(what: str, key: Secret) -> str:
    """The first attempt tells the bank's key in its heartbeat and in its failure."""
    activity.heartbeat({"key": key.value})
    await asyncio.sleep(0.02)
    if activity.info().attempt == 1:
        raise ConnectionError(f"{what}: the bank did not take {key.value}")
    return await step.fn(f"{what} with {len(key.value)} characters")


@workflow.defn
async def selling(count: int) -> list[str]:
    """One after the other, and all at once; one of them fails at first."""
    receipts = [await step("before"), await sell_at_last("stubborn")]
    return receipts + list(await asyncio.gather(*(sell(f"article {n}") for n in range(count))))


@workflow.defn
async def selling_in_time(count: int) -> list[str]:
    """What was sold; of the others nothing may be in the table."""
    found = await asyncio.gather(*(sell_in_time(f"article {n}") for n in range(count)), return_exceptions=True)
    return ["none" if isinstance(each, ActivityError) else str(each) for each in found]


@workflow.defn
async def paying(what: str, key: Secret) -> list[str]:
    return [await settle(what), await pay(what, key), str(key)]


@workflow.defn
async def ordered(what: str) -> str:
    """Started in a transaction that writes to the table too."""
    return await sell(what)


async def write_order(connection: Any, handle: WorkflowHandle[Any]) -> None:
    """Beside the start, for the run that it is the start of."""
    if handle.is_new:
        try:
            await connection.execute(_MAKE)
            await connection.execute(_INSERT, (handle.run_id, WITH_START, 0, "order"))
        except apsw.Error as error:  # as it comes, of the disk too
            raise StoreUnavailableError(f"nothing of {handle.workflow_id} is there: {error}") from error


ACTIVITIES: Final = [sell, sell_in_time, sell_at_last, settle, pay]
WORKFLOWS: Final = [selling, selling_in_time, paying, ordered]


# What must hold -------------------------------------------------------------------------------------------------------


class Books(Protocol):
    """A ledger with the shop's table beside, as far as is asked here. sold: the rows of the table."""

    @property
    def state(self) -> State: ...
    @property
    def auditor(self) -> Auditor: ...
    @property
    def activities(self) -> Mapping[str, ActivityDefinition[Any, Any]]: ...


def each_step_sold_once(books: Books, sold: Sequence[tuple[Any, ...]]) -> list[str]:
    """A step that is completed has written once, by the attempt that the ledger names; one that is not, nothing. What
    was written with a start is there once, if its run is."""
    rows: dict[tuple[str, int], list[int]] = {}
    for run_id, event_id, attempt, _ in sold:
        rows.setdefault((run_id, event_id), []).append(attempt)
    found = []
    for run_key, record in books.auditor.records.by_run.items():
        for event_id in _steps_of(books, record):
            books.auditor.checks("steps in transactions write once")
            written = rows.pop((record.run_id, event_id), [])
            if not _is_right(written, _outcome(books, run_key, event_id), record):
                what = f"event {event_id} of {record.run_id} as attempts {written}: {record.outcomes}"
                found.append(f"steps in transactions write once: {what}")
        is_joined = books.state.runs[run_key].workflow_type == ordered.__name__
        books.auditor.checks(*["starts in transactions are whole"] * is_joined)
        if rows.pop((record.run_id, WITH_START), []) != [0] * is_joined:
            found.append(f"starts in transactions are whole: {record.run_id} has not one row beside it")
    return found + [f"steps in transactions write once: there is no step {place}" for place in rows]


def _steps_of(books: Books, record: Record) -> Iterator[int]:
    for event_id, command in record.scheduled.items():
        if books.activities[command.activity_type].transaction is not None:
            yield event_id


def _outcome(books: Books, run_key: int, event_id: int) -> ActivityCompleted | ActivityFailed | None:
    """In the history, or still in its row."""
    recorded = books.auditor.records.by_run[run_key].outcomes.get(event_id)
    row = books.state.tasks.get(run_key, {}).get(event_id)
    return recorded if recorded is not None or row is None or row.outcome is None else decode_outcome(row.outcome)


def _is_right(written: list[int], outcome: ActivityCompleted | ActivityFailed | None, record: Record) -> bool:
    if isinstance(outcome, ActivityCompleted):
        return written == [outcome.attempt]
    if outcome is None and record.state.status != "running":
        return len(written) <= 1  # whether the step or the end of its run came first, only the table knows
    return not written


def sales(sold: Sequence[tuple[Any, ...]]) -> Counter[str]:
    """How often each thing was sold."""
    return Counter(what for *_, what in sold)
