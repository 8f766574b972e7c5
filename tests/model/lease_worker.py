"""The lease-and-fence model: what a worker does between its calls of the store."""

from __future__ import annotations

from collections.abc import Iterator

import tests.model.lease_state as at
from tests.model import lease_parts as parts
from tests.model.explorer import Move, State


class WorkerMoves:
    """without: the guard that is taken out."""

    without: str | None

    # Runs -------------------------------------------------------------------------------------------------------------

    def begin(self, s: State, w: int, b: int) -> Iterator[Move]:
        if not s[at.EXISTS] and s[b + at.LEASE] and not s[b + at.OP] and not s[b + at.HELD]:
            n = bytearray(s)
            n[b + at.OP], n[b + at.PHASE] = at.START, at.SENT
            yield ("begin", w), bytes(n)

    def claim_runs(self, s: State, w: int, b: int) -> Iterator[Move]:
        free = s[b + at.LEASE] and s[b + at.SESSION] and not s[b + at.HELD] and not s[b + at.OP]
        if free and s[at.DUE] and not s[at.OWNER] and not s[at.CLOSED] and s[at.BLOCKED] != s[b + at.LIFE]:
            n = bytearray(s)
            n[at.OWNER], n[at.BLOCKED] = w, 0
            parts.raise_fence(n)
            yield from self._told(n, b, ("claim_runs", w), at.HELD, at.CLAIMED, at.VIEW, s[at.LAST])

    def _told(self, n: bytearray, b: int, step: tuple[object, ...], *heard: int) -> Iterator[Move]:
        """The answer of a call that is no operation arrives, or is lost and the worker is in doubt."""
        lost = bytearray(n)
        for name, value in zip(heard[::2], heard[1::2], strict=True):
            n[b + name] = value
        n[b + at.AGE] = 0 if at.HELD in heard else n[b + at.AGE]
        yield step, bytes(n)
        if lost[at.FAULTS]:
            lost[at.FAULTS] -= 1
            lost[b + at.DOUBT] = self.without != "after a lost answer the worker asks what it owns"
            yield (*step, "answer lost"), bytes(lost)

    def look_for_lost_answers(self, s: State, w: int, b: int) -> Iterator[Move]:
        if s[b + at.DOUBT] and s[b + at.LEASE] and s[b + at.SESSION] and s[b + at.OP] != at.START:
            n = bytearray(s)
            n[b + at.DOUBT] = 0
            n[b + at.NEWS] |= s[b + at.HELD] == at.LOADED
            if s[at.OWNER] == w and not s[b + at.HELD]:
                n[b + at.HELD], n[b + at.AGE], n[b + at.VIEW] = at.CLAIMED, 0, s[at.LAST]
            taken = (s[b + at.INPUTS] | s[b + at.TAKEN] * (s[b + at.OP] == at.APPEND)) & at.OUTCOME
            known = s[b + at.ATTEMPT] or s[b + at.FINISH] or taken
            if s[at.TASK] == at.RUNNING and s[at.TASK_OWNER] == w and not known:
                n[b + at.ATTEMPT], n[b + at.ATTEMPT_N] = at.LOST_ROW, s[at.TASK_N]
            yield ("look_for_lost_answers", w), bytes(n)

    def load(self, s: State, w: int, b: int) -> Iterator[Move]:
        n = bytearray(s)
        raises = s[b + at.LIFE] == at.OLD_CODE and s[at.GOT] & at.OUTCOME
        if s[at.CLAIMS] > at.CLAIMS_MAX or raises or s[at.LAST] != s[b + at.VIEW]:
            n[b + at.HELD], n[b + at.OP], n[b + at.PHASE], n[b + at.TAKEN] = at.LEAVING, at.BLOCK, at.SENT, 0
            yield ("load", w, "and block"), bytes(n)
            return
        n[b + at.HELD], n[b + at.KNOWN] = at.LOADED, s[at.GOT]
        if parts.owns(s, w, b):
            n[at.CLAIMS] = 0
        n[b + at.INPUTS] = 0 if s[at.GOT] & at.STARTED else at.STARTED
        if s[at.MAIL] == at.WAITING:
            n[b + at.INPUTS] |= at.MESSAGE
        if s[at.TASK] == at.DONE:
            n[b + at.INPUTS] |= at.OUTCOME | at.FROM_ROW
        if s[at.GOT] & (at.STARTED | at.OUTCOME) == at.STARTED and not s[at.TASK]:
            n[b + at.PUT], n[b + at.PUT_AGE] = at.SENT, s[b + at.AGE]  # attempt 1 was lost and counts
        yield ("load", w), bytes(n)

    def activate(self, s: State, w: int, b: int) -> Iterator[Move]:
        if s[b + at.HELD] != at.LOADED or s[b + at.OP] or not s[b + at.INPUTS] & at.ALL:
            return
        n = bytearray(s)
        taken = s[b + at.INPUTS]
        n[b + at.INPUTS] = 0
        n[b + at.PHASE] = at.SENT
        n[b + at.TAKEN] = taken
        if taken & at.OUTCOME and s[b + at.LIFE] == at.OLD_CODE:
            n[b + at.HELD], n[b + at.OP] = at.LEAVING, at.BLOCK
            yield ("activate", w, "and block"), bytes(n)
            return
        n[b + at.OP] = at.APPEND
        yield ("activate", w), bytes(n)
        if taken & at.STARTED and not s[b + at.ATTEMPT]:
            n[b + at.TAKEN] = taken | at.EAGER
            yield ("activate", w, "with an eager attempt"), bytes(n)

    def answered(self, s: State, w: int, b: int) -> Iterator[Move]:
        """The answer to what was sent for the run, or its loss: then it is sent again, except for a START."""
        phase, op = s[b + at.PHASE], s[b + at.OP]
        if phase in (0, at.SENT):
            return
        n = bytearray(s)
        if s[at.FAULTS]:
            n[at.FAULTS] -= 1
            if op == at.START:
                parts.clear_op(n, b)
                n[b + at.DOUBT] = self.without != "after a lost answer the worker asks what it owns"
            else:
                n[b + at.PHASE] = at.SENT
            yield ("answered", w, "answer lost"), bytes(n)
            n = bytearray(s)
        if op == at.START:
            self._born(n, b)
        else:
            self._won(n, b)
        yield ("answered", w), bytes(n)

    def _born(self, n: bytearray, b: int) -> None:
        phase, stale = n[b + at.PHASE], n[b + at.TAKEN]
        parts.clear_op(n, b)
        if phase == at.WON and n[b + at.LEASE] and not stale:
            n[b + at.HELD], n[b + at.VIEW], n[b + at.KNOWN] = at.LOADED, 1, at.STARTED
            n[b + at.ATTEMPT_AGE] = n[b + at.AGE]
            parts.start_attempt(n, b, at.EAGERLY, 1)
        elif phase == at.LOST and not n[at.EXISTS]:
            n[at.EXISTS] = n[at.DUE] = 1  # started all the same, for whoever comes

    def _won(self, n: bytearray, b: int) -> None:
        taken = n[b + at.TAKEN]
        parts.clear_op(n, b)
        n[b + at.VIEW] += 1
        n[b + at.KNOWN] |= taken & at.ALL
        if n[b + at.KNOWN] == at.ALL:
            parts.forget(n, b)
        elif taken & at.EAGER:
            n[b + at.ATTEMPT_AGE] = n[b + at.AGE]
            parts.start_attempt(n, b, at.EAGERLY, 1)

    def woken_runs(self, s: State, w: int, b: int) -> Iterator[Move]:
        if s[at.WAKE] and s[at.OWNER] == w and s[b + at.LEASE] and s[b + at.SESSION]:
            n = bytearray(s)
            n[at.WAKE] = 0
            yield from self._told(n, b, ("woken_runs", w), at.NEWS, 1)

    def read_mail(self, s: State, w: int, b: int) -> Iterator[Move]:
        if not s[b + at.NEWS] or s[b + at.HELD] == at.CLAIMED or s[b + at.OP] == at.START:
            return  # news that is faster than the claim's or the birth's is kept
        n = bytearray(s)
        n[b + at.NEWS] = 0
        if s[b + at.HELD] == at.LOADED:
            known = s[b + at.KNOWN] | s[b + at.INPUTS] | s[b + at.TAKEN] * (s[b + at.OP] == at.APPEND)
            if s[at.MAIL] == at.WAITING and not known & at.MESSAGE:
                n[b + at.INPUTS] |= at.MESSAGE
            if s[at.TASK] == at.DONE and not known & at.OUTCOME:
                n[b + at.INPUTS] |= at.OUTCOME | at.FROM_ROW
        yield ("read_mail", w), bytes(n)

    def look_for_ended(self, s: State, w: int, b: int) -> Iterator[Move]:
        if s[b + at.HELD] == at.LOADED and s[at.CLOSED] and not s[b + at.OP]:
            n = bytearray(s)
            parts.forget(n, b)
            yield ("look_for_ended", w), bytes(n)

    def let_go(self, s: State, w: int, b: int) -> Iterator[Move]:
        if s[b + at.HELD] != at.LOADED or s[b + at.OP]:
            return
        n = bytearray(s)
        n[b + at.OP], n[b + at.PHASE], n[b + at.TAKEN] = at.RELEASE, at.SENT, 0
        eager = s[b + at.ATTEMPT] == at.EAGERLY and s[b + at.ATTEMPT_AGE] == s[b + at.AGE]
        if not (s[b + at.INPUTS] or eager or s[b + at.PUT]):
            yield ("let_go", w), bytes(n)
        n[b + at.TAKEN] = 1
        yield ("let_go", w, "at a shutdown"), bytes(n)

    # Attempts ---------------------------------------------------------------------------------------------------------

    def claim_tasks(self, s: State, w: int, b: int) -> Iterator[Move]:
        free = s[b + at.LEASE] and s[b + at.SESSION] and not s[b + at.ATTEMPT] and not s[b + at.FINISH]
        if free and s[at.TASK] == at.QUEUED:
            n = bytearray(s)
            n[at.TASK], n[at.TASK_OWNER] = at.RUNNING, w
            kind = at.LOST_ROW if s[at.TASK_LOST] else at.TAKEN_ROW
            yield from self._told(n, b, ("claim_tasks", w), at.ATTEMPT, kind, at.ATTEMPT_N, s[at.TASK_N])

    def attempt_begins(self, s: State, w: int, b: int) -> Iterator[Move]:
        n = bytearray(s)
        parts.start_attempt(n, b, at.BY_ROW, s[b + at.ATTEMPT_N])
        yield ("attempt_begins", w), bytes(n)

    def attempt_ends(self, s: State, w: int, b: int) -> Iterator[Move]:
        kind, number = s[b + at.ATTEMPT], s[b + at.ATTEMPT_N]
        if kind == at.EAGERLY:
            yield from self._eager_ends(s, w, b)
            return
        if s[b + at.FINISH]:
            return
        if number < at.ATTEMPTS_MAX:
            n = bytearray(s)
            parts.bring(n, b, at.FINISH_AGAIN)
            yield ("attempt_ends", w, "and failed"), bytes(n)
        if kind == at.LOST_ROW and number < at.ATTEMPTS_MAX:
            return
        n = bytearray(s)
        releasing = s[b + at.OP] == at.RELEASE
        if s[b + at.LEASE] and not s[b + at.ATTEMPT_AGE] and s[b + at.HELD] == at.LOADED and not releasing:
            n[b + at.INPUTS] |= at.OUTCOME | at.FROM_ROW
            parts.clear_attempt(n, b)
        else:
            parts.bring(n, b, at.FINISH_DONE)
        yield ("attempt_ends", w, "with an outcome"), bytes(n)

    def _eager_ends(self, s: State, w: int, b: int) -> Iterator[Move]:
        n = bytearray(s)
        parts.clear_attempt(n, b)
        owns = s[b + at.HELD] == at.LOADED and s[b + at.ATTEMPT_AGE] == s[b + at.AGE]
        if owns and s[b + at.OP] != at.RELEASE:
            n[b + at.INPUTS] |= at.OUTCOME
        yield ("attempt_ends", w, "with an outcome"), bytes(n)
        if not s[b + at.PUT]:
            n = bytearray(s)
            parts.clear_attempt(n, b)
            n[b + at.PUT], n[b + at.PUT_AGE] = at.SENT, s[b + at.ATTEMPT_AGE]
            yield ("attempt_ends", w, "and failed"), bytes(n)
