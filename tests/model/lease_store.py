"""The lease-and-fence model: what the store does, its clients, and the sessions. Each operation is one transaction."""

from __future__ import annotations

from collections.abc import Iterator

import tests.model.lease_state as at
from tests.model import lease_parts as parts
from tests.model.explorer import Move, State


class StoreMoves:
    """without: the guard that is taken out. codes: those with which a process may start."""

    without: str | None
    codes: tuple[int, ...]

    # Operations -------------------------------------------------------------------------------------------------------

    def append(self, s: State, w: int, b: int) -> Iterator[Move]:
        if s[b + at.OP] != at.APPEND or s[b + at.PHASE] != at.SENT:
            return
        if s[b + at.PUT] and s[b + at.TAKEN] & at.OUTCOME and self.without != "one worker's writes keep their order":
            return
        n = bytearray(s)
        if self._append(n, w, s[b + at.VIEW], s[b + at.TAKEN], s[b + at.AGE]):
            n[b + at.PHASE] = at.WON
            yield ("append", w), bytes(n)
        else:
            parts.forget(n, b)
            yield ("append", w, "and lose"), bytes(n)

    def append_late(self, s: State, w: int, b: int) -> Iterator[Move]:
        if s[b + at.STRAY]:
            n = bytearray(s)
            self._append(n, w, s[b + at.STRAY_VIEW], s[b + at.STRAY_TAKEN], s[b + at.STRAY_AGE])
            parts.clear_stray(n, b)
            yield ("append_late", w), bytes(n)

    def _append(self, n: bytearray, w: int, view: int, taken: int, age: int) -> bool:
        inputs = taken & at.ALL
        closes = (n[at.GOT] | inputs) == at.ALL
        fits = n[at.LAST] == view or self.without == "the last event is compared"
        holds = (n[at.OWNER] == w and age == 0) or self.without == "the fence is compared"
        if not (n[at.EXISTS] and not n[at.CLOSED] and fits and holds):
            if self.without == "a repeated append is known again":
                return False
            if closes or (n[at.GOT] == at.ALL and inputs):
                return n[at.CLOSED] == 1 and age == 1 and n[at.LAST] == view + 1
            return n[at.OWNER] == w and age == 0 and n[at.LAST] == view + 1
        if n[at.OWNER] != w or age:
            n[at.WRONG] = at.OLD_FENCE
        if n[at.GOT] & inputs:
            n[at.WRONG] = at.TWICE
        n[at.LAST] += 1
        n[at.GOT] |= inputs
        n[at.DUE] = n[at.CLAIMS] = 0
        if inputs & at.MESSAGE:
            n[at.MAIL] = at.DELIVERED
        if inputs & at.OUTCOME:
            parts.drop_task(n)
        if inputs & at.STARTED and not taken & at.EAGER:
            n[at.TASK], n[at.TASK_N] = at.QUEUED, 1
        if closes:
            parts.end_run(n, 1)
        return True

    def release(self, s: State, w: int, b: int) -> Iterator[Move]:
        if s[b + at.OP] == at.RELEASE:
            n = bytearray(s)
            if parts.owns(s, w, b):
                mail = s[at.MAIL] == at.WAITING or s[at.TASK] == at.DONE
                parts.orphan(n, s[b + at.TAKEN] or (mail and self.without != "letting go looks at the mail"))
            yield from parts.answer_lost(n, ("release", w))
            if s[b + at.TAKEN]:  # the process ends, and gives its lease back
                if s[b + at.SESSION] and s[b + at.LEASE]:
                    self._end_session(n, w, b)
                n[b + at.LIFE : b + at.WIDTH] = bytes(at.WIDTH - at.LIFE)
            else:
                parts.forget(n, b)
            yield ("release", w), bytes(n)

    def block(self, s: State, w: int, b: int) -> Iterator[Move]:
        if s[b + at.OP] == at.BLOCK:
            n = bytearray(s)
            if parts.owns(s, w, b):
                if s[b + at.TAKEN] & at.OUTCOME:  # what no transition took is left in the row
                    n[at.TASK], n[at.TASK_N], n[at.TASK_OWNER] = at.DONE, s[at.TASK_N] or 1, 0
                parts.orphan(n, 1)
                n[at.BLOCKED], n[at.CLAIMS] = s[b + at.LIFE], 0
            yield from parts.answer_lost(n, ("block", w))
            parts.forget(n, b)
            yield ("block", w), bytes(n)

    def start_here(self, s: State, w: int, b: int) -> Iterator[Move]:
        if s[b + at.OP] == at.START and s[b + at.PHASE] == at.SENT:
            n = bytearray(s)
            ended = s[b + at.TAKEN] or not s[b + at.SESSION]
            if s[at.EXISTS]:
                n[b + at.PHASE] = at.OTHER
            elif ended and self.without != "a session that has ended bears no run":
                n[b + at.PHASE] = at.LOST
            else:
                n[at.EXISTS] = n[at.LAST] = 1
                n[at.GOT], n[at.OWNER], n[b + at.AGE], n[b + at.PHASE] = at.STARTED, w, 0, at.WON
            yield ("start_here", w), bytes(n)

    def put_task(self, s: State, w: int, b: int) -> Iterator[Move]:
        if s[b + at.PUT]:
            n = bytearray(s)
            if s[at.OWNER] == w and s[b + at.PUT_AGE] == 0:
                there = s[at.TASK] and s[at.TASK_N] >= at.ATTEMPTS_MAX
                if not there or self.without == "a retry is not put over what is there":
                    parts.drop_task(n)
                    n[at.TASK], n[at.TASK_N] = at.QUEUED, at.ATTEMPTS_MAX
            # Sent again only while the run awaits the activity; else the row was there, and has done its duty.
            awaits = s[b + at.HELD] == at.LOADED and s[b + at.AGE] == s[b + at.PUT_AGE]
            if awaits and not (s[b + at.KNOWN] | s[b + at.TAKEN] * (s[b + at.OP] == at.APPEND)) & at.OUTCOME:
                yield from parts.answer_lost(n, ("put_task", w))
            n[b + at.PUT] = n[b + at.PUT_AGE] = 0
            yield ("put_task", w), bytes(n)

    def finish_task(self, s: State, w: int, b: int) -> Iterator[Move]:
        if s[b + at.FINISH] and s[b + at.OP] != at.BLOCK:
            n = bytearray(s)
            same = s[at.TASK_OWNER] == w and not s[b + at.FINISH_STALE]
            if s[at.TASK] == at.RUNNING and s[at.TASK_N] == s[b + at.FINISH_N] and same:
                parts.drop_task(n)
                if s[b + at.FINISH] == at.FINISH_DONE:
                    n[at.TASK], n[at.TASK_N] = at.DONE, s[at.TASK_N]
                    parts.wake_run(n)
                else:
                    n[at.TASK], n[at.TASK_N] = at.QUEUED, s[at.TASK_N] + 1
            yield from parts.answer_lost(n, ("finish_task", w))
            n[b + at.FINISH : b + at.FINISH_STALE + 1] = bytes(3)
            yield ("finish_task", w), bytes(n)

    # Clients ----------------------------------------------------------------------------------------------------------

    def start(self, s: State, w: int, b: int) -> Iterator[Move]:
        if not s[at.EXISTS]:
            n = bytearray(s)
            n[at.EXISTS] = n[at.DUE] = 1
            yield ("start",), bytes(n)

    def send_from_elsewhere(self, s: State, w: int, b: int) -> Iterator[Move]:
        if s[at.EXISTS] and not s[at.CLOSED] and not s[at.MAIL]:
            n = bytearray(s)
            n[at.MAIL] = at.WAITING
            parts.wake_run(n)
            yield ("send_from_elsewhere",), bytes(n)

    def send_from_here(self, s: State, w: int, b: int) -> Iterator[Move]:
        if s[at.EXISTS] and not s[at.CLOSED] and not s[at.MAIL] and s[b + at.LEASE]:
            n = bytearray(s)
            n[at.MAIL] = at.WAITING
            if s[at.OWNER] != w:
                parts.wake_run(n)
            heard = bytes(n)
            if s[at.OWNER] == w:
                n[b + at.NEWS] = 1
            yield ("send_from_here", w), bytes(n)
            if s[at.FAULTS]:
                looks = self.without != "who sent a message looks, whatever became of the answer"
                n[at.FAULTS] -= 1
                n[b + at.NEWS] = looks or heard[b + at.NEWS]
                yield ("send_from_here", w, "answer lost"), bytes(n)

    def terminate(self, s: State, w: int, b: int) -> Iterator[Move]:
        if s[at.EXISTS] and not s[at.CLOSED]:
            n = bytearray(s)
            n[at.LAST] += 1
            parts.end_run(n, 2)
            yield ("terminate",), bytes(n)

    # Sessions ---------------------------------------------------------------------------------------------------------

    def open_session(self, s: State, w: int, b: int) -> Iterator[Move]:
        if s[b + at.LIFE] and not s[b + at.LEASE] and not s[b + at.SESSION]:
            n = bytearray(s)
            n[b + at.SESSION] = n[b + at.LEASE] = 1
            yield ("open_session", w), bytes(n)

    def lease_runs_out(self, s: State, w: int, b: int) -> Iterator[Move]:
        if s[b + at.SESSION] == 1 and (s[at.FAULTS] or not s[b + at.LIFE]):
            n = bytearray(s)
            n[b + at.SESSION] = at.OVER
            n[at.FAULTS] -= bool(s[b + at.LIFE])
            yield ("lease_runs_out", w), bytes(n)

    def renew_session(self, s: State, w: int, b: int) -> Iterator[Move]:
        if not s[b + at.LEASE]:
            return
        n = bytearray(s)
        if s[b + at.SESSION] == at.OVER:
            n[b + at.SESSION] = 1
            yield ("renew_session", w), bytes(n)
        elif not s[b + at.SESSION]:
            n[b + at.LEASE] = 0
            parts.forget(n, b)
            if s[b + at.ATTEMPT] == at.BY_ROW:
                parts.clear_attempt(n, b)
            yield ("renew_session", w, "it is gone"), bytes(n)

    def bury_sessions(self, s: State, w: int, b: int) -> Iterator[Move]:
        if s[b + at.SESSION] == at.OVER:
            n = bytearray(s)
            self._end_session(n, w, b)
            yield ("bury_sessions", w), bytes(n)

    def _end_session(self, n: bytearray, w: int, b: int) -> None:
        n[b + at.SESSION] = 0
        if n[at.OWNER] == w:
            parts.orphan(n, n[at.DUE] if self.without == "a burial makes its runs due" else 1)
            n[at.CLAIMS] = min(n[at.CLAIMS] + 1, at.CLAIMS_MAX + 1)
        if n[at.TASK] == at.RUNNING and n[at.TASK_OWNER] == w:
            n[at.TASK], n[at.TASK_OWNER] = at.QUEUED, 0
            n[at.TASK_LOST] = self.without != "a lost attempt counts"
        if n[b + at.ATTEMPT] > at.EAGERLY:
            n[b + at.ATTEMPT_AGE] = 1
        if n[b + at.FINISH]:
            n[b + at.FINISH_STALE] = 1
        if n[b + at.OP] == at.START:
            n[b + at.TAKEN] = 1

    def kill(self, s: State, w: int, b: int) -> Iterator[Move]:
        if s[b + at.LIFE] and s[at.FAULTS]:
            n = bytearray(s)
            n[b : b + at.WIDTH] = bytes(at.WIDTH)
            n[b + at.SESSION] = s[b + at.SESSION]
            n[at.FAULTS] -= 1
            yield ("kill", w), bytes(n)

    def restart(self, s: State, w: int, b: int) -> Iterator[Move]:
        if not s[b + at.LIFE] and not s[b + at.SESSION]:
            for code in self.codes:
                n = bytearray(s)
                n[b + at.LIFE] = code
                yield ("restart", w, "with the old code" if code == at.OLD_CODE else "with new code"), bytes(n)
