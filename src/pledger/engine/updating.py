"""Updates of the runs that a worker holds: from being asked for to being told what became of them.

An update stands among the inputs of its run, behind whatever came before it. When it is the first of them, everything
before it is durable and so is the state that its validator sees; only then is it let through, as the first input of the
next transition, or refused, and nothing of it is written. So each has a transition of its own, and none waits for a
moment in which the run has nothing to do.

Whoever asked is told of nothing that a crash could take back: that it was accepted, or what came of it, once the
transition with that is durable.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from pledger import errors
from pledger.engine.interrupts import is_interrupt
from pledger.history import events
from pledger.history.events import CompleteUpdate, UpdateAccepted
from pledger.machine import updates

if TYPE_CHECKING:
    from pledger.engine.active_run import ActiveRun
    from pledger.engine.building import InFlight
    from pledger.engine.runs import Runs
    from pledger.history.events import Input


class Told(msgspec.Struct, array_like=True, frozen=True):
    """It was accepted. first_event_id: of the transition in which it was. completed: its outcome, as far as it is at
    hand; else it is in the history, or will be."""

    first_event_id: int
    completed: CompleteUpdate | None = None


#: None: the run has left memory, and nothing is known.
Answer: TypeAlias = Told | errors.PledgerError | None


class Ask(msgspec.Struct, eq=False):
    """Somebody waits for an update. until: what for. tell: called once. request_key: of the store's row, or 0."""

    update: UpdateAccepted
    until: Literal["accepted", "completed"]
    tell: Callable[[Answer], None]
    request_key: int = 0


class Updates:
    """See above; for the runs of one worker."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs

    def ask(self, run: ActiveRun, ask: Ask) -> None:
        """Put the update in line, unless the run knows it. Called from a plain callback, or a task of a client."""
        if run.gone:
            ask.tell(None)
            return
        update = ask.update
        known = run.machine.updates.get(update.update_id)
        waiting = None if known is not None else _waiting(run, update.update_id)
        digest = known.digest if known is not None else None if waiting is None else updates.digest(waiting)
        if digest is not None and digest != updates.digest(update):
            ask.tell(conflict(run, update))
            return
        run.asks = (*run.asks, ask)
        if known is not None:
            if not run.in_flight:  # else the transition that it knows it by may not be durable yet
                self._settle(run, ())
        elif waiting is None:
            self.add(run, update)
            self._runs.make_ready(run)

    def add(self, run: ActiveRun, update: UpdateAccepted, origin: int = 0) -> None:
        """See `ActiveRun.add`."""
        run.add(update, origin)
        run.has_updates = True

    def admit(self, run: ActiveRun, inputs: list[Input], origins: list[int], now_ms: int) -> None:
        """Leave of the inputs those of the next transition, and put those behind them back in line: an update is its
        first input or none."""
        if run.given and type(inputs[0]) in _BEGINNINGS:
            # They are one message. Updates among them were accepted once, and are not judged again.
            _put_back(run, inputs, origins, _next_update(inputs, run.given))
            return
        if run.last_event == 0:
            self._admit_at_start(run, inputs, origins, now_ms)
            return
        try:
            while inputs and isinstance(inputs[0], UpdateAccepted) and not self._lets_through(run, inputs[0]):
                del inputs[0], origins[0]
                if run.gone or run.releasing:
                    break
        except BaseException:
            _put_back(run, inputs, origins, 0)
            raise
        # None at all of a run that a validator has spoiled: it is on its way out, and what it is owed is stored.
        _put_back(run, inputs, origins, 0 if run.releasing else _next_update(inputs))

    def _admit_at_start(self, run: ActiveRun, inputs: list[Input], origins: list[int], now_ms: int) -> None:
        """The same where the code has not begun. What came with the start is before its first line, or comes to
        nothing: whoever sent it asks once more, and is told by that."""
        count = next((at for at, one in enumerate(inputs[1:], 1) if type(one) not in _WITH_START), len(inputs))
        first, later = inputs[:count], []
        if any(type(one) is UpdateAccepted for one in first) and type(first[0]) is events.RunStarted:
            definition = self._runs.definitions[run.identity.workflow_type]
            probe = self._runs.new_machine(definition, run.identity)
            judge = functools.partial(updates.admitted_at_start, probe, first, time_ms=now_ms)
            try:
                admitted = self._runs.watchdog.watch(run.identity, judge)
            except Exception:  # noqa: BLE001 - a bug of the code, which the activation itself is to meet
                admitted = [type(one) is not UpdateAccepted for one in first]
            finally:
                self._runs.leaving.dispose(probe)
            for at in reversed([at for at, let_through in enumerate(admitted) if not let_through]):
                if origins[at] > 0:
                    run.settled = (*run.settled, origins[at])
                elif any(ask.update is inputs[at] for ask in run.asks):
                    later.append(inputs[at])
                del inputs[at], origins[at]
                count -= 1
        _put_back(run, inputs, origins, _next_update(inputs, count))
        for update in later:  # whoever waits for it is told when the code has begun
            run.inputs.insert(0, update)
            run.origins.insert(0, 0)
        run.has_updates = run.has_updates or bool(later)

    def _lets_through(self, run: ActiveRun, update: UpdateAccepted) -> bool:
        """Whether it is to be recorded. If not, whoever waits for it is told why."""
        if update.update_id in run.machine.updates:  # it was sent twice, and the other one came first
            return False
        try:
            self._runs.watchdog.watch(run.identity, updates.validate, run.machine, update)
        except (errors.UpdateRejectedError, errors.UnknownUpdateError) as error:
            if error.__cause__ is not None and is_interrupt(error.__cause__):
                raise error.__cause__ from None
            self._tell(run, update.update_id, error)
            if run.machine.spoiled and not run.releasing:
                self._runs.leaving.begin_again(run)
            return False
        return True

    def won(self, built: InFlight) -> None:
        """The transition is durable."""
        self._settle(built.run, [each for each in built.commands if type(each) is CompleteUpdate])

    def forget(self, run: ActiveRun) -> None:
        """The run leaves memory."""
        asks, run.asks = run.asks, ()
        for ask in asks:
            ask.tell(None)

    def _settle(self, run: ActiveRun, completed: Sequence[CompleteUpdate]) -> None:
        asks, run.asks = run.asks, ()
        outcomes = {each.update_id: each for each in completed}
        left = []
        for ask in asks:
            update_id = ask.update.update_id
            known = run.machine.updates.get(update_id)
            if known is None or (ask.until == "completed" and not known.completed):
                left.append(ask)
            else:
                ask.tell(Told(known.first_event_id, outcomes.get(update_id)))
        run.asks = (*left, *run.asks)

    def _tell(self, run: ActiveRun, update_id: str, answer: Answer) -> None:
        asks, run.asks = run.asks, ()
        run.asks = tuple(ask for ask in asks if ask.update.update_id != update_id)
        for ask in asks:
            if ask.update.update_id == update_id:
                ask.tell(answer)


_BEGINNINGS = frozenset({events.RunStarted, events.RunReset})
_WITH_START = frozenset({events.RunStarted, events.SignalReceived, UpdateAccepted})


def conflict(run: ActiveRun, update: UpdateAccepted) -> errors.UpdateConflictError:
    told = updates.conflict_of(str(run.identity), update.update_id)
    return errors.UpdateConflictError(told, update_id=update.update_id)


def _waiting(run: ActiveRun, update_id: str) -> UpdateAccepted | None:
    found = (one for one in run.inputs if isinstance(one, UpdateAccepted) and one.update_id == update_id)
    return next(found, None)


def _next_update(inputs: Sequence[Input], start: int = 1) -> int:
    return next((at for at, one in enumerate(inputs) if at >= start and type(one) is UpdateAccepted), len(inputs))


def _put_back(run: ActiveRun, inputs: list[Input], origins: list[int], count: int) -> None:
    """All but the first `count` wait for the transition after this one, and so do outcomes that are among them."""
    back, back_origins = inputs[count:], origins[count:]
    del inputs[count:], origins[count:]
    run.inputs, run.origins = [*back, *run.inputs], [*back_origins, *run.origins]
    run.has_updates = any(type(one) is UpdateAccepted for one in run.inputs)
    if back and run.outcomes_applied:
        waits = set(map(id, back))
        applied = run.outcomes_applied
        run.outcomes_applied = [each for each in applied if id(each[1]) not in waits]
        run.outcomes = [*(each for each in applied if id(each[1]) in waits), *run.outcomes]
