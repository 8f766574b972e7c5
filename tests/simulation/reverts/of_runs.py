"""Reverts of what a worker does with its runs, its lease and its clock."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from pledger.engine.active_run import ActiveRun
from pledger.engine.attempt import Attempt
from pledger.engine.building import InFlight
from pledger.engine.committer import Committer
from pledger.engine.intake import Intake
from pledger.engine.limits import Limits
from pledger.engine.loading import Loader
from pledger.engine.port.answers import Answer, Sent
from pledger.engine.port.operations import Operation, Send
from pledger.engine.port.records import SessionRow
from pledger.engine.runs import Runs
from pledger.engine.session import LedgerClock
from pledger.engine.under_way import UnderWay
from pledger.history.transition import StoredTransition
from pledger.machine.machine import Machine
from pledger.testing import Faults
from pledger.testing.handles import SimulatedStore
from pledger.testing.seats import Seats
from pledger.testing.weather import Weather
from tests.simulation.reverts.revert import ANSWERS_LOST, DEATHS, Revert, several


def outcomes_go_to_a_run_that_is_handed_back(patch: pytest.MonkeyPatch) -> None:
    def outcome(self: Runs, attempt: Attempt, outcome: Any, *, fence: int | None, row: bool) -> bool:
        run = self.active.get(attempt.run_key)
        if run is None or run.gone or (fence is not None and run.fence != fence):
            return False
        run.add(outcome, -attempt.event_id if row else 0)
        self.make_ready(run)
        return True

    patch.setattr(Runs, "outcome", outcome)


def runs_may_leave_with_what_is_known_here_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(UnderWay, "has_eager", lambda self, run_key, event_ids: False)


def an_earlier_lease_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Runs, "holds", lambda self, owner: True)
    patch.setattr(Loader, "_is_wanted", lambda self, row: True)


def a_late_read_delivers_again(patch: pytest.MonkeyPatch) -> None:
    rule = Runs.won

    def won(self: Runs, built: InFlight) -> None:
        rule(self, built)
        built.run.forget_delivered()

    patch.setattr(Runs, "won", won)


def lost_answers_are_not_looked_for(patch: pytest.MonkeyPatch) -> None:
    async def nothing(self: Intake) -> None: ...

    patch.setattr(Intake, "_look_for_lost_answers", nothing)


def acknowledged_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    rule = Committer.submit

    def submit(self: Committer, operation: Operation, done: Callable[[Answer], None]) -> None:
        if isinstance(operation, Send):
            done(Sent(None))
            rule(self, operation, lambda _: None)
        else:
            rule(self, operation, done)

    patch.setattr(Committer, "submit", submit)


def a_passed_deadline_rings_on(patch: pytest.MonkeyPatch) -> None:
    rule = Runs._ring

    def ring(self: Runs, run_keys: list[int]) -> None:
        rule(self, run_keys)
        for run_key in run_keys:
            if run_key in self.active:
                self.arm(self.active[run_key])

    patch.setattr(Runs, "_ring", ring)


def a_termination_by_the_clock_alone(patch: pytest.MonkeyPatch) -> None:
    rule = SimulatedStore.read_last_transitions

    async def of_a_closed_run(self: SimulatedStore, run_key: int) -> list[StoredTransition]:
        return [] if run_key in self.state.open_runs else await rule(self, run_key)

    patch.setattr(SimulatedStore, "read_last_transitions", of_a_closed_run)


def timers_by_a_clock_that_is_ahead(patch: pytest.MonkeyPatch) -> None:
    rule = LedgerClock.now_ms
    patch.setattr(LedgerClock, "now_ms", lambda self: rule(self) + 20)


def a_clock_may_go_back(patch: pytest.MonkeyPatch) -> None:
    """The time of a run is that of the worker that has it."""
    rule = Runs.transition

    def transition(self: Runs, run: ActiveRun, now_ms: int) -> InFlight | None:
        run.time_ms = 0
        return rule(self, run, now_ms)

    patch.setattr(Runs, "transition", transition)


def leases_go_by_the_clock_of_the_worker(patch: pytest.MonkeyPatch) -> None:
    """Which is up to two hours ahead of the store's, or behind."""
    opened, renewed = SimulatedStore.open_session, SimulatedStore.renew_session

    def shift(self: SimulatedStore, session_key: int) -> None:
        session = self.state.sessions[session_key]
        ahead_ms = int((self._process.loop.clock.read(0.0) / 1e6 * 4 - 2) * 3_600_000)
        self.state.sessions[session_key] = replace(session, expires_ms=session.expires_ms + ahead_ms)

    async def open_session(self: SimulatedStore, *args: Any) -> SessionRow:
        session = await opened(self, *args)
        shift(self, session.session_key)
        return session

    def renew_session(self: SimulatedStore, session_key: int, lease_ms: int) -> int | None:
        now_ms = renewed(self, session_key, lease_ms)
        if now_ms is not None:
            shift(self, session_key)
        return now_ms

    patch.setattr(SimulatedStore, "open_session", open_session)
    patch.setattr(SimulatedStore, "renew_session", renew_session)


def eviction_leaves_the_rest_to_a_collector(patch: pytest.MonkeyPatch) -> None:
    """Which closes coroutines while the code of another run is at work: what their clean-up asks for leaks there."""
    left: list[Any] = []
    feed, rule = Machine._feed, Seats.dispose

    def close_left() -> None:
        while left:
            coroutine = left.pop()
            with contextlib.suppress(BaseException):
                while True:  # clean-up code that waits again is interrupted again
                    coroutine.throw(GeneratorExit())

    def destroy(self: Machine) -> None:
        if self._context is not None and not self._context.dead:
            self._context.dead = True
            left.extend(task.get_coro() for task in self._context.loop.live_tasks())

    def dispose(self: Seats) -> None:
        rule(self)
        close_left()

    def collecting(self: Machine, inputs: Any) -> int:
        close_left()
        return feed(self, inputs)

    patch.setattr(Machine, "destroy", destroy)
    patch.setattr(Machine, "_feed", collecting)
    patch.setattr(Seats, "dispose", dispose)


def slow_at_the_end_of_loads(self: Weather, verb: str, faults: Faults) -> Awaitable[None] | None:
    draw = self._dice.random
    return asyncio.sleep(draw() * 30) if verb == "read_stored_runs" and draw() < faults.slow_store else None


#: One worker that loses its lease again and again, and a store whose answers at the end of a load may outlast that: a
#: run is claimed and loaded once more before its first load is through, which then puts the lost run over the present.
#: By then that one must be further on: what the lost run wants to write is refused, and the worker loads it anew, but
#: one that waits for an activity whose outcome the present run has taken writes nothing ever again.
LOADED_TWICE: dict[str, Any] = {
    "faults": Faults(clock_jump=0.1, slow_store=0.3, effect_slow=0.1),
    "cases": several("sequence", 6, args=(20,)),
    "options": {"workers": 1, "limits": Limits(lease_ms=2_000)},
    "settings": {
        "pledger.testing.weather.Weather._latency": slow_at_the_end_of_loads,
        # It is its own looks that find its lease over, before it is renewed.
        "pledger.testing.handles.SimulatedStore.look_every_s": 0.5,
    },
}

REVERTS = [
    Revert(outcomes_go_to_a_run_that_is_handed_back, ("everything finishes",), Faults(slow_store=0.3)),
    Revert(runs_may_leave_with_what_is_known_here_alone, ("every open run has a waker",)),
    Revert(an_earlier_lease_counts, ("everything finishes", "one outcome per position"), **LOADED_TWICE),
    Revert(a_late_read_delivers_again, ("messages are delivered once", "no run blocks")),
    Revert(lost_answers_are_not_looked_for, ("everything finishes",), ANSWERS_LOST),
    Revert(acknowledged_before_it_is_durable, ("nothing acknowledged is lost", "every cancel has its verdict"), DEATHS),
    Revert(a_passed_deadline_rings_on, ("nobody is busy for ever",), Faults(), ("doomed",) * 3),
    Revert(
        a_termination_by_the_clock_alone,
        ("time goes forward",),
        Faults(clock_jump=0.5, effect_slow=0.5),
        ("terminated",) * 6,
    ),
    Revert(timers_by_a_clock_that_is_ahead, ("timers never early",)),
    Revert(
        a_clock_may_go_back,
        ("time goes forward",),
        Faults(clock_jump=0.5, kill=0.3, effect_slow=0.5),
        several("sequence", 6, args=(12,)),
    ),
    Revert(leases_go_by_the_clock_of_the_worker, ("everything finishes",), DEATHS),
    Revert(
        eviction_leaves_the_rest_to_a_collector,
        ("replay equals the record", "no run blocks"),
        DEATHS,
        ("tidying", "sleeper") * 3,
        options={"limits": Limits(cached_runs_max=0, lease_ms=2_000)},
    ),
]
