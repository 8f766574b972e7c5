"""Deadlines of attempts: set for each, and hardly one ever passes."""

from __future__ import annotations

import asyncio
import gc
import weakref
from types import SimpleNamespace
from typing import Any

from pledger.engine.deadlines import Deadlines
from pledger.engine.session import LedgerClock


class Attempt(SimpleNamespace):
    """As much of an attempt as has a deadline."""


def clock() -> LedgerClock:
    found = LedgerClock()
    found.sample(1_700_000_000_000)
    return found


def test_attempts_that_are_over_are_let_go_whatever_their_time_outs() -> None:
    """Below the deadline of its run each attempt may have as long as no other one has."""

    async def play() -> None:
        ledgers = clock()
        deadlines = Deadlines(asyncio.get_running_loop(), ledgers, lambda attempt: None)
        held: list[weakref.ref[Attempt]] = []
        for number in range(3_000):
            attempt: Any = Attempt(started_ms=ledgers.now_ms(), finished=False)
            deadlines.set(attempt, attempt.started_ms + 600_000 + number)
            attempt.finished = True
            held.append(weakref.ref(attempt))
        del attempt
        gc.collect()
        assert sum(each() is not None for each in held) < 600
        deadlines.stop()

    asyncio.run(play())


def test_sweeping_forgets_none_that_goes_on() -> None:
    async def play() -> None:
        ledgers = clock()
        passed: list[Attempt] = []
        done = asyncio.Event()

        def pass_by(attempt: Any) -> None:
            passed.append(attempt)
            done.set()

        deadlines = Deadlines(asyncio.get_running_loop(), ledgers, pass_by)
        lasting: Any = Attempt(started_ms=ledgers.now_ms(), finished=False)
        deadlines.set(lasting, lasting.started_ms + 1)
        for number in range(1_000):
            attempt: Any = Attempt(started_ms=ledgers.now_ms(), finished=True)
            deadlines.set(attempt, attempt.started_ms + 600_000 + number)
        await done.wait()
        assert passed == [lasting]
        deadlines.stop()

    asyncio.run(play())
