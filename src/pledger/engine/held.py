"""Rows that a worker has claimed ahead of its free slots: they wait here, in a `line`, until one is free.

To the store they are attempts of this session, durable before they begin like any other; to this worker they have not
begun. So they may go back to the queue as if nobody had taken them: when the worker leaves, or when they wait for
longer than was to be expected. What goes back is written once and never again: with the same number its attempt may
have been claimed once more meanwhile, and must not be taken from whoever runs it. If the store says nothing of it, the
row is one that was claimed and not heard of, and its attempt counts as lost.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from pledger.engine.line import Line
from pledger.engine.task_rows import decode_command
from pledger.history.retry import DEFAULT_RETRY

if TYPE_CHECKING:
    from pledger.engine.port.records import TaskRow
    from pledger.engine.slots import Kind, Slots


class Held:
    """begin: starts the attempt of a row that has a slot. give_back: puts one into the queue again."""

    def __init__(
        self,
        slots: Slots,
        loop: asyncio.AbstractEventLoop,
        *,
        begin: Callable[[TaskRow], None],
        give_back: Callable[[TaskRow], None],
    ) -> None:
        self._slots = slots
        self._loop = loop
        self._begin = begin
        self._give_back = give_back
        self._lines: dict[Kind, Line] = defaultdict(Line)
        self._filling = False
        self._leaving = False
        self._timer: asyncio.TimerHandle | None = None

    # Claims -----------------------------------------------------------------------------------------------------------

    def room(self, types: Sequence[str]) -> int:
        """How many rows of these, which are of one kind, may be claimed beyond the free slots."""
        if self._leaving or not types:
            return 0
        kind = self._slots.kind(types[0])
        line = self._lines[kind]
        return max(0, line.pace.ahead(self._loop.time(), self._slots.most(kind)) - len(line))

    def claimed(self, types: Sequence[str], took_s: float) -> None:
        """A claim has brought activities of these types."""
        for kind in {self._slots.kind(each) for each in types}:
            self._lines[kind].pace.claimed(took_s)

    def ended(self, activity_type: str) -> None:
        """An attempt that came from a row is over."""
        self._lines[self._slots.kind(activity_type)].pace.ended(self._loop.time())

    def keep(self, row: TaskRow) -> None:
        """There is no slot for it now."""
        line = self._lines[self._slots.kind(row.activity_type)]
        if self._leaving or _is_last(row):
            # After the last attempt there is none: should this worker die now, the activity would have ended by an
            # attempt that never began.
            line.pace.falter()
            self._give_back(row)
            return
        line.put(row, self._loop.time())
        self._slots.refill = self.fill
        if self._timer is None:
            self._watch()

    # Slots ------------------------------------------------------------------------------------------------------------

    def fill(self) -> None:
        """A slot is free: the first that have room begin."""
        if self._filling or self._loop.is_closed():
            return  # one has ended as it began, and the loop below goes on; or those that run are being thrown away
        self._filling = True
        try:
            for line in self._lines.values():
                while line and self._slots.has_room(line.first().activity_type):
                    self._begin(line.take())
        finally:
            self._filling = False
            self._note()

    def _note(self) -> None:
        if not any(self._lines.values()):
            self._slots.refill = None

    # What becomes of them otherwise -----------------------------------------------------------------------------------

    def knows(self, row: TaskRow) -> bool:
        """Whether its attempt waits here."""
        wanted = (row.run_key, row.event_id, row.attempt)
        rows = [each for line in self._lines.values() for each in line]
        return any((each.run_key, each.event_id, each.attempt) == wanted for each in rows)

    def cancel(self, run_key: int, event_id: int) -> None:
        """Should it wait here, it ends as cancelled when its turn comes."""
        for line in self._lines.values():
            for row in list(line):
                if (row.run_key, row.event_id) == (run_key, event_id):
                    line.replace(replace(row, cancel_requested=True))

    def leave(self) -> None:
        """The worker goes: all of them go back, and so does what still comes."""
        self._leaving = True
        for line in self._lines.values():
            self._return(line)
        self._note()

    def forget(self) -> None:
        """The lease is gone, and every row with it."""
        for line in self._lines.values():
            line.clear()
        self._note()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _watch(self) -> None:
        """Have the oldest looked at when it has waited too long."""
        limits = [line.oldest_s() + line.pace.patience_s for line in self._lines.values() if line]
        self._timer = None
        if limits:
            self._timer = self._loop.call_later(max(0.0, min(limits) - self._loop.time()), self._look)

    def _look(self) -> None:
        """What has waited too long is for whoever is idle."""
        now_s = self._loop.time()
        for line in self._lines.values():
            if line and line.oldest_s() + line.pace.patience_s <= now_s:
                line.pace.falter()
                self._return(line)
        self._note()
        self._watch()

    def _return(self, line: Line) -> None:
        for row in line.clear():
            self._give_back(row)


def _is_last(row: TaskRow) -> bool:
    """Whether its activity may have no further attempt; or cannot be read, which who has a slot for it tells."""
    try:
        policy = decode_command(row.command).options.retry or DEFAULT_RETRY
    except msgspec.MsgspecError:
        return True
    return 0 < policy.maximum_attempts <= row.attempt
