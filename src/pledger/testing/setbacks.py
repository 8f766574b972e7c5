"""What was known of a ledger that is not as it was: after a crash, and after a fail-over that lost its newest part."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from pledger.history import transition
from pledger.store.losses import JUMP
from pledger.testing.records import Record, Records
from pledger.testing.views import StateView

if TYPE_CHECKING:
    from collections.abc import Callable

    from pledger.engine.attempt import Attempt
    from pledger.store.memory.state import State
    from pledger.testing.findings import Findings


class Setbacks:
    """records: what is known. findings: where to say what was looked at and what broke it. begin_anew: called when the
    ledger has gone back, with what it is now: nothing else counts that was known of it."""

    def __init__(self, records: Records, findings: Findings, begin_anew: Callable[[State], None]) -> None:
        self._records = records
        self._findings = findings
        self._begin_anew = begin_anew
        #: Runs as they were before the transitions that turned up after a crash; None: not there at all.
        self._unheard: dict[int, Record | None] = {}
        #: How often the ledger has gone back.
        self._term = 0

    def is_durable(self) -> None:
        """Something has been written on top of what turned up after a crash: it stays."""
        self._unheard.clear()

    def recovered(self, state: State) -> None:
        """Every process is gone and the ledger came up as `state`: what was acknowledged is there. What was refused
        with an unknown outcome may have come through after all; until something is durable on top of it, a power cut
        may still take it."""
        for run_key, record in list(self._records.by_run.items()):
            self._findings.checks("nothing acknowledged is lost")
            if _is_there(record, run_key, state):
                continue
            if run_key not in self._unheard or not self._take_back(run_key, state):
                self._findings.violated(
                    "nothing acknowledged is lost",
                    f"run {run_key} ({record.run_id}) had {record.state.last_event} events; there is "
                    f"{state.runs.get(run_key)}",
                )
                return
        for run_key, row in state.runs.items():
            if run_key not in self._records.by_run:
                self._records.by_run[run_key] = Record(row.run_id)
                self._unheard.setdefault(run_key, None)
            record = self._records.by_run[run_key]
            for stored in state.histories[run_key]:
                if stored.first_event_id > record.state.last_event:
                    if run_key not in self._unheard:
                        self._unheard[run_key] = copy.deepcopy(record)
                    last_event = stored.first_event_id + len(transition.decode(stored.body).events()) - 1
                    self._records.extend(run_key, stored, last_event)
            self._records.check_status(run_key, StateView(state))

    def _take_back(self, run_key: int, state: State) -> bool:
        """Whether the run is as it was before what turned up that nobody had been told of."""
        earlier = self._unheard.pop(run_key)
        if earlier is None:
            del self._records.by_run[run_key]
            return True
        self._records.by_run[run_key] = earlier
        return _is_there(earlier, run_key, state)

    def remember(self) -> tuple[dict[int, Record], set[int]]:
        """For `went_back`."""
        return copy.deepcopy(self._records.by_run), set(self._records.forgotten)

    def went_back(self, known: tuple[dict[int, Record], set[int]], state: State) -> None:
        """A replica has taken over that lacks what came since then, and the loss is declared."""
        self._term += 1
        self._records.by_run, self._records.forgotten = known
        self._begin_anew(state)

    def is_stale(self, attempt: Attempt) -> bool:
        """Whether the attempt is of a part of the ledger that is gone, or was given up with it: all that the ledger has
        given since is higher."""
        if not self._term:
            return False
        owner = None if attempt.row is None else attempt.row.owner
        given = attempt.run_key + attempt.fence if owner is None else owner
        return given // JUMP < self._term


def _is_there(record: Record, run_key: int, state: State) -> bool:
    """Whether all that is known of the run is in the ledger."""
    row, heads = state.runs.get(run_key), [each.checksum for each in state.histories.get(run_key, [])]
    if row is not None and row.is_forgotten:
        heads = [row.head]
    return row is not None and row.run_id == record.run_id and record.head in [transition.CHAIN_START, *heads]
