"""What several moves of the rolling-deploy model ask of a state, and do to one (`n`, which is changed)."""

from __future__ import annotations

import tests.model.rollout_state as at
from tests.model.explorer import State


class Parts(at.Layout):
    """without: a guard that is taken out, see `rollout.GUARDS`."""

    def __init__(self, kinds: tuple[str, ...], without: str | None) -> None:
        super().__init__(kinds)
        self.without = without

    # Who may take what ------------------------------------------------------------------------------------------------

    def ghosts(self) -> bool:
        return self.without == "a session that has ended claims nothing"

    def claimable(self, s: State, w: int) -> list[int]:
        found = []
        for r in self.runs:
            b = self.run_at[r]
            if s[b + at.OWNER] or s[b + at.LAST] == at.CLOSED or s[self.part_at[w, r] + at.HELD]:
                continue
            if s[b + at.DUE] if not s[b + at.BLOCKED] else self.may_unblock(s, b, s[self.seat_at[w] + at.CODE]):
                found.append(r)
        return found

    def may_unblock(self, s: State, b: int, code: int) -> bool:
        if self.without == "a block is not for its own code":
            return True
        if self.without == "a block remembers every code":
            return s[b + at.BLOCKED] != code
        return not s[b + at.TRIED] & (at.OLD | at.NEW if self.without == "other code is another identity" else code)

    def claimable_tasks(self, s: State, w: int) -> list[int]:
        return [
            r for r in self.runs if s[self.run_at[r] + at.TASK] == at.QUEUED and not s[self.part_at[w, r] + at.ATTEMPT]
        ]

    # What happens to runs and attempts --------------------------------------------------------------------------------

    def begin(self, n: bytearray, w: int, r: int, kind: int) -> None:
        n[self.part_at[w, r] + at.ATTEMPT] = kind
        if n[self.run_at[r] + at.DONE_ONCE]:
            n[at.WRONG] = at.REPEATED

    def put_back(self, n: bytearray, w: int, r: int) -> None:
        """An attempt that was stopped is queued again, if it still counts."""
        p, run = self.part_at[w, r], self.run_at[r]
        eager = n[p + at.ATTEMPT] == at.EAGER and not n[p + at.AGE] and not n[run + at.TASK]
        by_row = n[p + at.ATTEMPT] == at.BY_ROW and n[run + at.TASK] == at.STARTED and n[run + at.TASK_OWNER] == w
        if eager or by_row:
            n[run + at.TASK], n[run + at.TASK_OWNER] = at.QUEUED, 0
        n[p + at.ATTEMPT] = 0

    def leave_behind(self, n: bytearray, w: int, r: int) -> None:
        p, run = self.part_at[w, r], self.run_at[r]
        if n[p + at.OUT]:
            n[run + at.TASK], n[run + at.TASK_OWNER] = at.DONE, 0
        elif n[p + at.ATTEMPT] == at.EAGER:
            n[run + at.TASK], n[run + at.TASK_OWNER] = at.STARTED, w
            n[p + at.ATTEMPT] = at.BY_ROW

    def forget(self, n: bytearray, w: int, r: int) -> None:
        """The run leaves the worker's memory; an attempt that has a row goes on."""
        p = self.part_at[w, r]
        attempt = n[p + at.ATTEMPT]
        n[p : p + at.PART] = bytes(at.PART)
        n[p + at.ATTEMPT] = attempt if attempt == at.BY_ROW else 0

    def raise_fence(self, n: bytearray, r: int) -> None:
        for w in at.SEATS:
            p = self.part_at[w, r]
            if n[p + at.HELD] or n[p + at.ATTEMPT] == at.EAGER:
                n[p + at.AGE] = 1

    def orphan(self, n: bytearray, r: int, *, due: bool) -> None:
        b = self.run_at[r]
        n[b + at.OWNER], n[b + at.DUE] = 0, due
        self.raise_fence(n, r)

    def end_session(self, n: bytearray, owner: int, *, due: bool = True) -> None:
        for r, b in enumerate(self.run_at):
            if n[b + at.OWNER] == owner:
                self.orphan(n, r, due=due)
            if n[b + at.TASK_OWNER] == owner:
                n[b + at.TASK], n[b + at.TASK_OWNER] = at.QUEUED, 0

    def hand_over(self, n: bytearray, owner: int, to: int) -> None:
        for b in self.run_at:
            for field in (b + at.OWNER, b + at.TASK_OWNER):
                if n[field] == owner:
                    n[field] = to

    def leave_seat(self, n: bytearray, w: int) -> None:
        """The process is gone, with all that it had in memory."""
        b = self.seat_at[w]
        n[b + at.CODE] = n[b + at.STAGE] = n[b + at.SESSION] = n[b + at.ASK] = 0
        for r in self.runs:
            p = self.part_at[w, r]
            n[p : p + at.PART] = bytes(at.PART)

    def fault(self, n: bytearray) -> None:
        n[at.FAULTS] -= 1
        for b in self.run_at:
            n[b + at.DONE_ONCE] = 0  # from now on it may be lost with who had it
