"""What a state of the lease-and-fence model holds, what may never be, and how it reads.

The store: one run, at most one task row, and the sessions of two workers. The run's code schedules one activity (at
most two attempts), waits for its outcome and for one message, in whichever order they come, and completes. So its
history has at most three transitions, and what each of them took is a set of three inputs: STARTED, OUTCOME, MESSAGE.

A worker: what one process has in memory about the run, its attempt, and what it has sent to the store and not heard of.

Fences are kept as *ages*: how often the run's fence has risen since somebody was given it, 0 for the present one; 2
stands for 2 and more, since nothing in the protocol looks further back. So there are finitely many states though owners
change for ever. Sessions are kept as "the one that this worker has now" or "an earlier one of its" (`..._STALE`).
"""

from __future__ import annotations

from typing import Final

# The store
EXISTS: Final = 0
LAST: Final = 1  # transitions in the history
GOT: Final = 2  # the inputs in it
OWNER: Final = 3  # worker number from 1, 0 for none
DUE: Final = 4  # 1: at once; 0: only a message or an outcome can wake it
CLAIMS: Final = 5  # take-overs without progress
BLOCKED: Final = 6  # by which code
CLOSED: Final = 7  # 1 by its code, 2 from outside
MAIL: Final = 8
WAKE: Final = 9
TASK: Final = 10
TASK_N: Final = 11  # which attempt
TASK_OWNER: Final = 12
TASK_LOST: Final = 13
# What really happened, for the invariants
BEGUN_1: Final = 14  # how often attempt 1 began
BEGUN_2: Final = 15
WRONG: Final = 16  # a move broke a rule: see RULES
FAULTS: Final = 17  # faults that may still happen
SHARED: Final = 18

# A worker, from its base. SESSION is the store's; all else is the process's memory.
SESSION: Final = 0  # none, LIVE, or OVER and not buried yet
LIFE: Final = 1  # 0 dead, else the code it runs
LEASE: Final = 2  # it believes to have a session
HELD: Final = 3
AGE: Final = 4  # of the fence that it has, or of the block that it sent
VIEW: Final = 5  # the run's transitions as it knows them
KNOWN: Final = 6  # the inputs in them
INPUTS: Final = 7  # wait for its next transition
OP: Final = 8  # what it has sent for the run, and PHASE: how far that is
PHASE: Final = 9
TAKEN: Final = 10  # the inputs in it; of a RELEASE: due at once; of a START: by a session that is over
ATTEMPT: Final = 11
ATTEMPT_N: Final = 12
ATTEMPT_AGE: Final = 13  # EAGER: of its fence; else 1 when its session is an earlier one
PUT: Final = 14  # the row of the next attempt on its way
PUT_AGE: Final = 15
FINISH: Final = 16  # an outcome or a further attempt for the row, on its way
FINISH_N: Final = 17
FINISH_STALE: Final = 18
NEWS: Final = 19  # it was told to look at the run's mail
DOUBT: Final = 20  # an answer was lost
STRAY: Final = 21  # an append that it sent for a run it has forgotten since
STRAY_VIEW: Final = 22
STRAY_TAKEN: Final = 23
STRAY_AGE: Final = 24
WIDTH: Final = 25

BASES: Final = (SHARED, SHARED + WIDTH)

STARTED, OUTCOME, MESSAGE = 1, 2, 4
ALL: Final = STARTED | OUTCOME | MESSAGE
FROM_ROW: Final = 8  # the outcome stands in the task row too
EAGER: Final = 16  # the attempt starts here once the transition is durable
OLD_CODE, NEW_CODE = 1, 2  # the old code has a bug: it raises once the outcome is there
WAITING, DELIVERED, UNDELIVERED = 1, 2, 3
QUEUED, RUNNING, DONE = 1, 2, 3
LIVE, OVER = 1, 2
CLAIMED, LOADED, LEAVING = 1, 2, 3
APPEND, RELEASE, BLOCK, START = 1, 2, 3, 4
SENT, WON, LOST, OTHER = 1, 2, 3, 4
EAGERLY, TAKEN_ROW, BY_ROW, LOST_ROW = 1, 2, 3, 4
FINISH_DONE, FINISH_AGAIN = 1, 2
ATTEMPTS_MAX: Final = 2
CLAIMS_MAX: Final = 1

RULES: Final = (
    "",
    "no write with an old fence",
    "at most one outcome per position, and a message is delivered once",
    "an attempt begins once, and never more than maximum_attempts do",
    "intent before effect",
    "terminal states absorb",
)
OLD_FENCE, TWICE, ATTEMPTS, INTENT, TERMINAL = 1, 2, 3, 4, 5


def canonical(s: bytes) -> bytes:
    """Of two states that differ by the workers' numbers, the one whose first worker comes first."""
    one, other = s[SHARED : SHARED + WIDTH], s[SHARED + WIDTH :]
    if one < other or (one == other and s[OWNER] < 2 and s[TASK_OWNER] < 2):
        return s
    swapped = bytearray(s[:SHARED] + other + one)
    if s[OWNER]:
        swapped[OWNER] = 3 - s[OWNER]
    if s[TASK_OWNER]:
        swapped[TASK_OWNER] = 3 - s[TASK_OWNER]
    return min(s, bytes(swapped)) if one == other else bytes(swapped)


def wrong(s: bytes) -> str | None:
    if s[WRONG]:
        return RULES[s[WRONG]]
    if not s[EXISTS] or s[CLOSED]:
        return None
    missing = _no_waker_of_task(s) or (_no_waker(s) if not s[OWNER] else _no_waker_at_owner(s))
    return missing and f"every open run has a waker: {missing}"


def _no_waker(s: bytes) -> str | None:
    """What a run without an owner waits for that nobody brings."""
    if s[DUE]:
        return None  # claimed by whoever is there, or parked by a block until other code comes
    if s[MAIL] == WAITING or s[TASK] == DONE:
        return "nobody owns it, it has mail and is not due"
    if not s[GOT] & STARTED:
        return "nobody owns it, it has not begun and is not due"
    if not s[GOT] & OUTCOME and not s[TASK]:
        return "nobody owns it and nobody runs its activity"
    return None


def _knows_attempt(s: bytes, b: int) -> bool:
    busy = (s[b + INPUTS] | s[b + TAKEN] * (s[b + OP] in (APPEND, BLOCK))) & OUTCOME
    return bool(s[b + ATTEMPT] or s[b + FINISH] or s[b + DOUBT] or busy)


def _no_waker_of_task(s: bytes) -> str | None:
    if s[TASK] != RUNNING:
        return None
    b = BASES[s[TASK_OWNER] - 1]
    if not s[b + SESSION]:
        return "its task is started by a session that has ended"
    if s[b + LIFE] and s[b + LEASE] and not _knows_attempt(s, b):
        return "its task is started by a worker that does not know of it"
    return None


def _no_waker_at_owner(s: bytes) -> str | None:
    b = BASES[s[OWNER] - 1]
    if not s[b + SESSION]:
        return "its owner's session has ended"
    if not s[b + LIFE] or s[b + DOUBT]:
        return None  # once the lease is over somebody buries it; or the worker is about to ask what it owns
    if not s[b + HELD]:
        born = s[b + OP] == START and s[b + PHASE] == WON
        return None if born else "its owner does not know that it has the run"
    if s[b + HELD] != LOADED or s[b + OP] or s[b + INPUTS]:
        return None
    if (s[MAIL] == WAITING or s[TASK] == DONE) and not (s[b + NEWS] or s[WAKE]):
        return "its owner rests and was not told of its mail"
    if not s[b + KNOWN] & OUTCOME:
        eager = s[b + ATTEMPT] == EAGERLY and s[b + ATTEMPT_AGE] == s[b + AGE]
        if not (eager or s[b + PUT] or s[TASK]):
            return "its owner rests and nobody runs its activity"
    return None


_FIELDS: Final = [name for name, value in globals().items() if name.isupper() and type(value) is int]
_SHARED_NAMES: Final = _FIELDS[:SHARED]
_WORKER_NAMES: Final = _FIELDS[SHARED + 1 :][:WIDTH]


def tell(s: bytes) -> str:
    """What is not zero."""
    parts = [("run", _SHARED_NAMES, s[:SHARED])]
    parts += [(f"worker {w}", _WORKER_NAMES, s[b : b + WIDTH]) for w, b in enumerate(BASES, 1)]
    return "; ".join(
        f"{part}: " + " ".join(f"{name.lower()}={value}" for name, value in zip(names, values, strict=True) if value)
        for part, names, values in parts
    )
