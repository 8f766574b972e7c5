"""Runs that start in their worker: the start and the first transition are one commit."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from pledger import errors
from pledger.engine.active_run import ActiveRun
from pledger.engine.interrupts import is_interrupt
from pledger.engine.port.answers import Answer, Reply, Started
from pledger.engine.port.operations import StartRun
from pledger.history import transition
from pledger.history.events import RunStarted, SignalReceived, UpdateAccepted
from pledger.machine.identity import RunIdentity

if TYPE_CHECKING:
    import asyncio

    from pledger.engine.building import InFlight
    from pledger.engine.committer import Committer
    from pledger.engine.listener import Listener
    from pledger.engine.runs import Runs


class Birth(msgspec.Struct, frozen=True):
    """A run that is to start. done: gets the answer of its start. beside: what is sent with it, or None."""

    start: StartRun
    started: RunStarted
    identity: RunIdentity
    done: Callable[[Answer], None]
    beside: SignalReceived | UpdateAccepted | None = None


class Births:
    """session_key: whose the runs will be. unborn: those that the next turn bears. in_flight: how many are on their way
    to the store."""

    def __init__(
        self,
        runs: Runs,
        *,
        committer: Committer,
        loop: asyncio.AbstractEventLoop,
        listener: Listener,
        session_key: Callable[[], int],
    ) -> None:
        self._loop = loop
        self.unborn: deque[Birth] = deque()
        self.in_flight = 0
        self._runs = runs
        self._committer = committer
        self._listener = listener
        self._session_key = session_key

    def begin(self, birth: Birth) -> None:
        """Start a run here."""
        self.unborn.append(birth)
        self._committer.kick()

    def bear(self, birth: Birth, now_ms: int) -> None:
        """Activate the run for the first time, and submit its start with what came of that. now_ms: of the turn."""
        start, started = birth.start, birth.started
        machine = self._runs.new_machine(self._runs.definitions[started.workflow_type], birth.identity)
        run = ActiveRun(birth.identity, machine, run_key=0, chain_key=0, fence=1, head=transition.CHAIN_START)
        run.deadline_ms, run.warned, run.started_ms = started.deadline_ms, 0, start.started_ms
        if self._runs.meter is not None:
            run.ready_s, run.waited_ms = self._loop.time(), max(0, now_ms - start.started_ms)
        run.event_mark, run.byte_mark = self._runs.growth.first
        run.add(started)
        if birth.beside is not None:
            run.add(birth.beside)
            run.has_updates = isinstance(birth.beside, UpdateAccepted)
        try:
            built = self._runs.transition(run, now_ms)
        except BaseException as error:
            if is_interrupt(error):
                self._committer.submit(start, birth.done)
                raise
            # Kept as an ordinary start: whoever claims it meets the bug and blocks the run.
            self._runs.leaving.dispose(machine)
            self._committer.submit(start, birth.done)
            return
        assert built is not None
        run.in_flight = True
        start.owner, start.first, start.pieces = self._session_key(), built.append, built.append.pieces
        self.in_flight += 1
        self._committer.submit(start, functools.partial(self._born, birth, built))

    def _born(self, birth: Birth, built: InFlight, answer: Answer) -> None:
        self.in_flight -= 1
        runs, start, run = self._runs, birth.start, built.run
        if isinstance(answer, Started) and runs.holds(start.owner):
            run.run_key, run.chain_key = answer.run_key, answer.chain_key
            runs.active[run.run_key] = run
            run.held = runs.pauses.covers(run)  # what it is of may have been paused while it was born
            try:
                runs.won(built)
            except BaseException as error:
                if is_interrupt(error):
                    runs.interrupted(run)
                raise
            self._listener.run_born(run.run_key)
        else:
            runs.activities.admission.unreserve(built.eager)
            run.gone = True
            runs.leaving.dispose(run.machine)
        if isinstance(answer, errors.StoreUnavailableError):
            self._listener.in_doubt()
        if answer is Reply.LOST:
            # This worker lost its lease meanwhile: the run is started all the same, for whoever comes.
            start.owner, start.first, start.pieces = None, None, ()
            self._committer.submit(start, birth.done)
        else:
            birth.done(answer)
