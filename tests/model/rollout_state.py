"""What a state of the rolling-deploy model holds, what may never be, and how it reads.

Some runs; two *seats*, on each of which one worker process after the other sits, of the old code or the new. A run's
code takes its start and schedules one activity (transition 1), takes the outcome and sleeps (2), and ends when the
timer fires (3). What a version of the code makes of it is its *kind*: see `KINDS`.

Fences are kept as *ages*: 0 while nobody has had the run since, 1 once somebody has. A session that a killed process
left is its seat's number plus 2, as an owner, until it is buried; a GHOST is one that nobody will ever bury.
"""

from __future__ import annotations

from typing import Final

from tests.model.explorer import State

OLD, NEW = 1, 2  # also as bits
#: What of a run's code has changed: nothing; a step, behind a patch; a step, without one; or one version cannot take
#: the outcome, or neither can.
KINDS: Final = ("same", "patched", "unpatched", "old bug", "new bug", "both bugs")

# Shared
STAYS: Final = 0  # 0 while versions may change; then the one that stays
FAULTS: Final = 1
WRONG: Final = 2
SHARED: Final = 3
# A seat, from its base
CODE: Final = 0  # of the process on it; 0: nobody
STAGE: Final = 1
SESSION: Final = 2  # none (or ended by others), LIVE, OVER
DEAD: Final = 3  # a killed process left a session that is not buried
ASK: Final = 4  # a claim on its way: of runs, of a task; plus STALE once its session has ended
SEAT: Final = 5
# A run, from its base
LAST: Final = 0  # transitions in its history
BY_1: Final = 1  # who made the first one
BY_2: Final = 2
OWNER: Final = 3
DUE: Final = 4
BLOCKED: Final = 5  # by which code
TRIED: Final = 6  # the codes that have blocked it since the last transition
TASK: Final = 7
TASK_OWNER: Final = 8
DONE_ONCE: Final = 9  # an attempt has had its outcome, and nothing has happened that may lose one
RUN: Final = 10
# What the process on a seat has of a run, from its base
HELD: Final = 0
AGE: Final = 1
VIEW: Final = 2
OP: Final = 3  # sent to the store
OP_DUE: Final = 4  # of a RELEASE
ATTEMPT: Final = 5
OUT: Final = 6  # the outcome is here, and in no transition
PART: Final = 7

RUNNING, STOPPING, GRACE, GRACE_OVER, HANDING = 1, 2, 3, 4, 5
LIVE, OVER = 1, 2
ASK_RUNS, ASK_TASK, STALE = 1, 2, 2
QUEUED, STARTED, DONE = 1, 2, 3
CLAIMED, LOADED, LEAVING = 1, 2, 3
APPEND, BLOCK, RELEASE = 1, 2, 3
EAGER, BY_ROW = 1, 2
CLOSED: Final = 3
GHOST: Final = 5
SEATS: Final = (1, 2)

RULES: Final = (
    "",
    "a transition is written by the owner with the fence only",
    "what an attempt has brought is not done again",
)
OLD_FENCE, REPEATED = 1, 2


class Layout:
    """Where things lie in a state with so many runs."""

    def __init__(self, kinds: tuple[str, ...]) -> None:
        self.kinds = kinds
        self.runs = range(len(kinds))
        self.seat_at = {w: SHARED + (w - 1) * SEAT for w in SEATS}
        first_run = SHARED + len(SEATS) * SEAT
        self.run_at = [first_run + r * RUN for r in self.runs]
        first_part = first_run + len(kinds) * RUN
        self.part_at = {(w, r): first_part + ((w - 1) * len(kinds) + r) * PART for w in SEATS for r in self.runs}
        self.width = first_part + len(SEATS) * len(kinds) * PART
        self._parts = len(kinds) * PART
        self._first_part = first_part

    # What code makes of a run ---------------------------------------------------------------------------------------

    def fits(self, code: int, s: State | bytearray, r: int) -> bool:
        """Whether the code can replay the run."""
        b, kind = self.run_at[r], self.kinds[r]
        if kind == "unpatched":
            return s[b + LAST] < 1 or s[b + BY_1] == code
        if kind == "patched" and code == OLD:
            return s[b + LAST] < 2 or s[b + BY_2] == OLD
        return True

    def steps(self, code: int, s: State | bytearray, r: int) -> bool:
        """Whether the code can make the run's next transition."""
        kind = self.kinds[r]
        bad = {"old bug": OLD, "new bug": NEW, "both bugs": OLD | NEW}.get(kind, 0)
        return s[self.run_at[r] + LAST] != 1 or not code & bad

    # What must hold -------------------------------------------------------------------------------------------------

    def wrong(self, s: State) -> str | None:
        if s[WRONG]:
            return RULES[s[WRONG]]
        for r in self.runs:
            if s[self.run_at[r] + LAST] < CLOSED and (missing := self._missing(s, r)) is not None:
                return f"no run is lost: {missing}"
        return None

    def _missing(self, s: State, r: int) -> str | None:
        """What an open run has nobody for."""
        b = self.run_at[r]
        owner, task = s[b + OWNER], s[b + TASK_OWNER]
        if self._is_gone(s, owner):
            return "its owner's session has ended, and nobody will bury it"
        if self._is_gone(s, task):
            return "its task is started by a session that has ended"
        if owner in SEATS and s[self.seat_at[owner] + CODE]:
            return self._missing_at_owner(s, r, owner)
        if owner or s[b + BLOCKED] or s[b + DUE]:
            return None
        if s[b + LAST] == 1 and s[b + TASK] in (QUEUED, STARTED):
            return None
        return "nobody owns it, it is not due and nothing will wake it"

    def _is_gone(self, s: State, owner: int) -> bool:
        """Whether the owner is a session that is there no more."""
        if owner in SEATS:
            return not s[self.seat_at[owner] + SESSION]
        return owner == GHOST or (owner != 0 and not s[self.seat_at[owner - 2] + DEAD])

    def _missing_at_owner(self, s: State, r: int, owner: int) -> str | None:
        p, b = self.part_at[owner, r], self.run_at[r]
        if not s[p + HELD]:
            return "its owner does not know that it has it"
        waits = s[p + HELD] == LOADED and s[b + LAST] == 1 and not s[p + OP]
        if waits and not (s[p + ATTEMPT] or s[p + OUT] or s[b + TASK]):
            return "nobody runs its activity"
        return None

    def unsettled(self, s: State) -> str | None:
        """Asked where nothing goes on by itself any more."""
        stays = s[STAYS]
        if not stays:
            return None
        for w in SEATS:
            if s[self.seat_at[w] + CODE] not in (0, stays):
                return "the old workers leave"
        for r in self.runs:
            b = self.run_at[r]
            if s[b + LAST] == CLOSED:
                continue
            can = self.fits(stays, s, r) and self.steps(stays, s, r)
            if not s[b + BLOCKED]:
                return f"each run finishes or is blocked: run {r + 1} stands still without a reason"
            if can:
                return f"each run finishes or is blocked by code that cannot carry it on: run {r + 1} is not taken"
            if not s[b + TRIED] & stays:
                return f"a block is visible as the staying code's: run {r + 1} was never tried by it"
        return None

    # Names ----------------------------------------------------------------------------------------------------------

    def canonical(self, s: State) -> State:
        """Of two states that differ by the seats' numbers, one."""
        swapped = bytearray(s)
        one, other = self.seat_at[1], self.seat_at[2]
        swapped[one : one + SEAT], swapped[other : other + SEAT] = s[other : other + SEAT], s[one : one + SEAT]
        half = self._first_part + self._parts
        swapped[self._first_part :] = s[half:] + s[self._first_part : half]
        for b in self.run_at:
            swapped[b + OWNER] = _OTHER[s[b + OWNER]]
            swapped[b + TASK_OWNER] = _OTHER[s[b + TASK_OWNER]]
        return min(s, bytes(swapped))

    def tell(self, s: State) -> str:
        parts = [_told("deploy", _SHARED_NAMES, s, 0)]
        parts += [_told(f"seat {w}", _SEAT_NAMES, s, self.seat_at[w]) for w in SEATS]
        for r in self.runs:
            parts.append(_told(f"run {r + 1} ({self.kinds[r]})", _RUN_NAMES, s, self.run_at[r]))
            parts += [_told(f"at seat {w}", _PART_NAMES, s, self.part_at[w, r]) for w in SEATS]
        return "; ".join(part for part in parts if part)


_OTHER: Final = (0, 2, 1, 4, 3, GHOST)
_SHARED_NAMES: Final = ("stays", "faults", "wrong")
_SEAT_NAMES: Final = ("code", "stage", "session", "dead", "ask")
_RUN_NAMES: Final = (
    "last",
    "by_1",
    "by_2",
    "owner",
    "due",
    "blocked",
    "tried",
    "task",
    "task_owner",
    "done_once",
)
_PART_NAMES: Final = ("held", "age", "view", "op", "op_due", "attempt", "out")


def _told(what: str, names: tuple[str, ...], s: State, base: int) -> str:
    """What is not zero."""
    found = " ".join(f"{name}={s[base + at]}" for at, name in enumerate(names) if s[base + at])
    return f"{what}: {found}" if found else ""
