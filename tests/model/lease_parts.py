"""What several moves of the lease-and-fence model do to a state (`n`, which is changed)."""

from __future__ import annotations

from collections.abc import Iterator

import tests.model.lease_state as at
from tests.model.explorer import Move, State


def owns(s: State, w: int, b: int) -> bool:
    return s[at.OWNER] == w and s[b + at.AGE] == 0


def answer_lost(n: bytearray, step: tuple[object, ...]) -> Iterator[Move]:
    """The operation was written and its sender is not told: what it sent stays on its way, and is written again."""
    if n[at.FAULTS]:
        lost = bytearray(n)
        lost[at.FAULTS] -= 1
        yield (*step, "answer lost"), bytes(lost)


def raise_fence(n: bytearray) -> None:
    for b in at.BASES:
        # An age means something only beside what has the fence.
        if n[b + at.HELD] or n[b + at.OP]:
            n[b + at.AGE] = min(2, n[b + at.AGE] + 1)
        if n[b + at.ATTEMPT] == at.EAGERLY:
            n[b + at.ATTEMPT_AGE] = min(2, n[b + at.ATTEMPT_AGE] + 1)
        if n[b + at.PUT]:
            n[b + at.PUT_AGE] = min(2, n[b + at.PUT_AGE] + 1)
        if n[b + at.STRAY]:
            n[b + at.STRAY_AGE] = min(2, n[b + at.STRAY_AGE] + 1)


def orphan(n: bytearray, due: int) -> None:
    n[at.OWNER] = n[at.WAKE] = 0
    n[at.DUE] = bool(due)
    raise_fence(n)


def end_run(n: bytearray, how: int) -> None:
    if n[at.CLOSED]:
        n[at.WRONG] = at.TERMINAL
    orphan(n, 0)
    n[at.CLOSED] = how
    n[at.BLOCKED] = n[at.CLAIMS] = 0
    if n[at.MAIL] == at.WAITING:
        n[at.MAIL] = at.UNDELIVERED
    drop_task(n)


def wake_run(n: bytearray) -> None:
    if n[at.CLOSED]:
        return
    if n[at.OWNER]:
        n[at.WAKE] = 1
    else:
        n[at.DUE] = 1


def drop_task(n: bytearray) -> None:
    n[at.TASK] = n[at.TASK_N] = n[at.TASK_OWNER] = n[at.TASK_LOST] = 0


def start_attempt(n: bytearray, b: int, kind: int, number: int) -> None:
    n[b + at.ATTEMPT], n[b + at.ATTEMPT_N] = kind, number
    begun = at.BEGUN_1 + number - 1
    n[begun] += 1
    if n[begun] > 1:
        n[at.WRONG] = at.ATTEMPTS
    if not n[at.GOT] & at.STARTED:
        n[at.WRONG] = at.INTENT


def bring(n: bytearray, b: int, what: int) -> None:
    n[b + at.FINISH], n[b + at.FINISH_N] = what, n[b + at.ATTEMPT_N]
    n[b + at.FINISH_STALE] = n[b + at.ATTEMPT_AGE]
    clear_attempt(n, b)


def clear_attempt(n: bytearray, b: int) -> None:
    n[b + at.ATTEMPT] = n[b + at.ATTEMPT_N] = n[b + at.ATTEMPT_AGE] = 0


def clear_op(n: bytearray, b: int) -> None:
    n[b + at.OP] = n[b + at.PHASE] = n[b + at.TAKEN] = 0


def clear_stray(n: bytearray, b: int) -> None:
    n[b + at.STRAY] = n[b + at.STRAY_VIEW] = n[b + at.STRAY_TAKEN] = n[b + at.STRAY_AGE] = 0


def forget(n: bytearray, b: int) -> None:
    """The run leaves the worker's memory; an append that is on its way arrives all the same."""
    if n[b + at.OP] == at.APPEND and n[b + at.PHASE] == at.SENT and not n[b + at.STRAY]:
        n[b + at.STRAY], n[b + at.STRAY_VIEW] = 1, n[b + at.VIEW]
        n[b + at.STRAY_TAKEN], n[b + at.STRAY_AGE] = n[b + at.TAKEN], n[b + at.AGE]
    if n[b + at.OP] != at.START:
        clear_op(n, b)
        n[b + at.AGE] = 0
    n[b + at.HELD] = n[b + at.VIEW] = n[b + at.KNOWN] = n[b + at.INPUTS] = 0
