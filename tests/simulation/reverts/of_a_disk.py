"""Reverts of what the SQLite store does about a disk, and of the conditions in its statements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from pledger.engine.loading import PAGE, HistoryReader, Loader
from pledger.engine.port.operations import Release
from pledger.engine.port.records import RunRow
from pledger.errors import CorruptHistoryError
from pledger.history.transition import StoredTransition, Transition, checksum
from pledger.store.sqlite import ledger, mailbox
from pledger.store.sqlite.log import Log
from pledger.store.sqlite.writer import Writer
from pledger.testing import Faults
from tests.simulation.reverts.revert import STANDSTILLS, Revert


def no_fsync(patch: pytest.MonkeyPatch) -> None:
    """synchronous=OFF."""
    rule = Writer._begin

    def begin(self: Writer, wait_ms: int, *, durable: bool) -> None:
        self._durable = durable  # or it would be set to what it ought to be
        self._cursor.execute("PRAGMA synchronous = OFF", ())
        rule(self, wait_ms, durable=durable)

    patch.setattr(Writer, "_begin", begin)


def commits_do_not_wait_for_the_disk(patch: pytest.MonkeyPatch) -> None:
    """synchronous=NORMAL."""
    rule = Writer.run

    def run(self: Writer, job: Any, *, durable: bool, **others: Any) -> Any:
        return rule(self, job, durable=False, **others)

    patch.setattr(Writer, "run", run)


def a_log_is_not_mended(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Log, "mend", lambda self: None)


def a_log_is_trusted_at_first(patch: pytest.MonkeyPatch) -> None:
    rule = Log.__init__

    def init(self: Log, *args: Any) -> None:
        rule(self, *args)
        self.is_doubtful = False

    patch.setattr(Log, "__init__", init)


def checksums_are_ignored(patch: pytest.MonkeyPatch) -> None:
    rule = HistoryReader.take

    def take(self: HistoryReader, row: StoredTransition) -> Transition:
        return rule(self, replace(row, checksum=checksum(self.head, self.last_event + 1, row.body)))

    patch.setattr(HistoryReader, "take", take)
    patch.setattr(HistoryReader, "check_end", lambda self, row: setattr(self, "head", row.head))


def damage_concerns_all_who_are_loaded(patch: pytest.MonkeyPatch) -> None:
    """Runs that are brought into memory by one question share what is wrong with one of them."""
    rule = Loader._load

    async def load(self: Loader, rows: Sequence[RunRow], back: list[Release]) -> list[RunRow]:
        found = await self._store.read_stored_runs([row.run_key for row in rows], PAGE)
        for row, stored in zip(rows, found, strict=True):
            reader = HistoryReader(self._store, row.run_key, row.run_id)
            try:
                for each in stored.transitions:
                    reader.take(each)
            except CorruptHistoryError as error:
                for each_row in rows:
                    self._given_up(each_row, error, 1)
                return []
        return await rule(self, rows, back)

    patch.setattr(Loader, "_load", load)


# The statements ---------------------------------------------------------------------------------------------------


def statements_know_no_fence(patch: pytest.MonkeyPatch) -> None:
    _without(patch, "fence = ?", "_APPEND", "_APPEND_AND_CLOSE")


def statements_know_no_last_event(patch: pytest.MonkeyPatch) -> None:
    _without(patch, "last_event = ? AND", "_APPEND", "_APPEND_AND_CLOSE")


def _without(patch: pytest.MonkeyPatch, condition: str, *statements: str) -> None:
    """Without the condition, but with its binding."""
    for name in statements:
        before, where, conditions = getattr(ledger, name).partition("WHERE")
        assert condition in conditions
        patch.setattr(ledger, name, before + where + conditions.replace(condition, condition.replace("=", "+")))


def letting_go_looks_at_no_mail(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(ledger._SQL, "due_if_mail", "SELECT ?1")


def messages_have_no_memory(patch: pytest.MonkeyPatch) -> None:
    """A message that was delivered is forgotten, with its id."""
    patch.setitem(mailbox._SQL, "forget_message", "DELETE FROM pledger_message WHERE message_key = ?")


#: A claim of a task is acknowledged too: with it lost, an attempt begins a second time.
LOST = ("nothing acknowledged is lost", "attempts are counted", "the file is sound")
#: What comes of damage that nobody sees: the code goes on with other facts, or falls over them.
DAMAGED = (
    "damage is found",
    "every open run has a waker",
    "told is true",
    "no run blocks",
    "the fold accepts it",
    "clients are not surprised",
)
POWER = Faults(power_loss=0.3)
FAILING = Faults(power_loss=0.3, disk_sync_error=0.1, kill=0.5)
SQLITE = {"store": "sqlite"}

REVERTS = [
    Revert(no_fsync, LOST, POWER, **SQLITE),
    Revert(commits_do_not_wait_for_the_disk, LOST, POWER, **SQLITE),
    Revert(a_log_is_not_mended, LOST, FAILING, **SQLITE),
    Revert(a_log_is_trusted_at_first, LOST, Faults(power_loss=0.3, disk_sync_error=0.3, kill=1.0), **SQLITE),
    Revert(
        checksums_are_ignored, (*DAMAGED, "timers fire once"), Faults(bit_flip=0.5, kill=0.3, restart=0.3), **SQLITE
    ),
    Revert(
        damage_concerns_all_who_are_loaded,
        ("no run blocks",),
        Faults(bit_flip=0.5, kill=0.3, restart=0.3),
        ("sleeper",) * 6,
        **SQLITE,
    ),
    Revert(
        statements_know_no_fence,
        ("no write with an old fence", "one writer per run"),
        STANDSTILLS,
        ("sleeper",) * 6,
        **SQLITE,
    ),
    # The schema refuses a second event of one number, so that such a run blocks: a second line of defence.
    Revert(
        statements_know_no_last_event,
        # Or it goes on for ever, trying.
        ("compare-and-set", "no run blocks", "everything finishes"),
        Faults(reply_lost=0.2, store_unavailable=0.1),
        **SQLITE,
    ),
    Revert(letting_go_looks_at_no_mail, ("every open run has a waker",), STANDSTILLS, ("collector",) * 6, **SQLITE),
    Revert(
        messages_have_no_memory,
        ("messages are delivered once", "nothing acknowledged"),
        Faults(duplicate_message=0.5),
        **SQLITE,
    ),
]
