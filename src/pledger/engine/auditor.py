"""The auditor: looks for open runs that nothing will carry on, and wakes them.

Every message, outcome and timer wakes its run in the transaction that writes it, so there should be none. Should one be
lost all the same, by a bug or by hands in the database, its run would wait for ever, and nobody would know. So one
worker of each namespace looks at all open runs, a few at a time. What seems wrong is looked at again later: only a run
that has not moved since, and where it is still so, is woken. A wake that was not needed costs a look, and changes
nothing. A run that has been woken several times, and is as before, is paused, with the reason, for a person to see.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from pledger.engine.pausing import pauses_of, scope_of_run
from pledger.engine.port.filters import AllOf, Match, Not
from pledger.engine.wakers import Verdict, verdict_on
from pledger.errors import StoreError
from pledger.history.state import ImpossibleEventError

if TYPE_CHECKING:
    from pledger.engine.port.records import RunRow
    from pledger.engine.port.verbs import Store

logger = logging.getLogger("pledger.engine")

#: Between two looks of a worker, in seconds; it looks at so many runs in each, and at so much of a history.
EVERY_S: Final = 60.0
PAGE: Final = 200
TRANSITIONS_MAX: Final = 100
#: So many of them in one go, and then it gives way: reading is done on the loop where the ledger is a file.
SLICE: Final = 20
PAUSE_S: Final = 0.05
#: How long a worker has the chore without saying that it still does it.
HOLD_MS: Final = 180_000
#: A run that was woken so often and has not moved is paused.
WAKES_MAX: Final = 3
#: How long what wakes a run may wait for its worker: it is a question that nobody answers.
_WAKE_MS: Final = 60_000
#: The name of that question.
WAKE: Final = "__pledger_audit"
#: Whose name stands at the pause.
AUDITOR: Final = "the audit"

_DUTY: Final = "audit"


@dataclass(frozen=True, slots=True)
class Looked:
    """One run, as it was found."""

    row: RunRow
    verdict: Verdict

    @property
    def problem(self) -> str | None:
        return self.verdict.problem

    def is_as_before(self, before: Looked) -> bool:
        """Whether nothing has moved."""
        return self._mark() == before._mark()

    def _mark(self) -> tuple[int, int, str | None]:
        return self.row.last_event, self.row.fence, self.problem


async def look_at(store: Store, namespace: str, rows: Sequence[RunRow], *, transitions_max: int) -> list[Looked]:
    """Each of the open runs, and what carries it on. One whose history cannot be read is for its worker to find."""
    if not rows:
        return []
    now_ms = await store.now_ms()
    pauses = await store.read_pauses(namespace)
    sessions = {each.session_key for each in await store.read_sessions(namespace)}
    stored = await store.read_stored_runs([row.run_key for row in rows], transitions_max)
    found = []
    for row, each in zip(rows, stored, strict=True):
        try:
            verdict = verdict_on(row, each, now_ms, is_paused=bool(pauses_of(pauses, row)), sessions=sessions)
        except (msgspec.MsgspecError, ImpossibleEventError):
            verdict = Verdict("worker", "its history cannot be read")
        found.append(Looked(row, verdict))
    return found


async def open_runs(store: Store, namespace: str, before_key: int | None, limit: int) -> list[RunRow]:
    """The next page of them, newest first."""
    is_open = Not(Match("closed_ms"))
    where = is_open if before_key is None else AllOf((is_open, Match("run_key", None, (("<", before_key),))))
    return await store.list_runs(namespace, where, limit)


async def wake(store: Store, looked: Looked) -> None:
    """Have whoever holds the run look at all that waits for it; where nobody does, a worker takes it."""
    row = looked.row
    await store.ask(row.run_key, "query", WAKE, b"[]", await store.now_ms() + _WAKE_MS)


async def park(store: Store, looked: Looked) -> None:
    reason = f"it was woken {WAKES_MAX} times, and is as before: {looked.problem}"
    await store.pause(scope_of_run(looked.row), reason, AUDITOR)


class Auditor:
    """session_key: of the worker's session, 0 while it has none."""

    def __init__(
        self,
        store: Store,
        loop: asyncio.AbstractEventLoop,
        randomness: random.Random,
        *,
        session_key: Callable[[], int],
        namespace: str,
    ) -> None:
        self._store = store
        self._loop = loop
        self._randomness = randomness
        self._session_key = session_key
        self._namespace = namespace
        self._suspects: list[Looked] = []
        self._woken: dict[int, tuple[Looked, int]] = {}
        self._before: int | None = None
        self._task: asyncio.Task[None] | None = None
        self._duty = 0

    def start(self) -> None:
        self._task = self._loop.create_task(self._run(), name="pledger-auditor")

    async def stop(self) -> None:
        """At once: somebody else goes on with it."""
        if self._task is None:
            return
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        if self._duty:
            with contextlib.suppress(StoreError):  # then it is free once it is not held any more
                await self._store.leave_duty(self._namespace, _DUTY, self._duty, 0)

    async def _run(self) -> None:
        while True:
            await self._rest(EVERY_S * (0.75 + self._randomness.random() / 2))
            try:
                await self._look()
            except StoreError as error:
                # What is wrong with the store others tell loudly; this can wait.
                logger.debug("the audit waits: %s", error)
            except Exception:
                logger.exception("the audit failed; it goes on")

    async def _look(self) -> None:
        session_key = self._session_key()
        if not session_key:
            return
        # Before it is ours: a stop that comes while the answer is on its way has to give it back all the same.
        self._duty = session_key
        if not await self._store.take_duty(self._namespace, _DUTY, session_key, HOLD_MS):
            self._duty, self._suspects = 0, []
            return
        await self._settle_suspects()
        page = await open_runs(self._store, self._namespace, self._before, PAGE)
        self._before = page[-1].run_key if len(page) == PAGE else None
        for begin in range(0, len(page), SLICE):
            some = page[begin : begin + SLICE]
            looked = await look_at(self._store, self._namespace, some, transitions_max=TRANSITIONS_MAX)
            self._suspects += [each for each in looked if each.problem is not None]
            await self._rest(PAUSE_S)

    async def _rest(self, seconds: float) -> None:
        """By a timer of its own, which a virtual clock knows for a look: no time passes for its sake."""
        rested = asyncio.Event()
        timer = self._loop.call_later(seconds, rested.set)
        try:
            await rested.wait()
        finally:
            timer.cancel()

    async def _settle_suspects(self) -> None:
        suspects, self._suspects = {each.row.run_key: each for each in self._suspects}, []
        rows = [await self._store.read_run(run_key) for run_key in suspects]
        rows = [row for row in rows if row.status == "running"]
        for found in await look_at(self._store, self._namespace, rows, transitions_max=TRANSITIONS_MAX):
            if found.problem is not None and found.is_as_before(suspects[found.row.run_key]):
                await self._mend(found)

    async def _mend(self, found: Looked) -> None:
        row = found.row
        before, times = self._woken.pop(row.run_key, (found, 0))
        if before.row.last_event != row.last_event or before.problem != found.problem:
            times = 0
        if times >= WAKES_MAX:
            await park(self._store, found)
            told = "%s: nothing carries it on: %s. It was woken %d times and is paused; see pledger show"
            logger.error(told, row.workflow_id, found.problem, times)
            return
        self._woken[row.run_key] = (found, times + 1)
        await wake(self._store, found)
        logger.error("%s: nothing carried it on: %s. It is woken; please report this", row.workflow_id, found.problem)
