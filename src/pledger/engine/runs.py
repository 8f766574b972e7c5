"""The runs that a worker owns: their activations, transitions, and what follows once a transition is durable.

Order is everything here. Inputs gather on a run; a turn of the committer activates it once and submits one transition;
only after the answer WON anything that the transition asked for is started (intent before effect), anybody is told
(nothing acknowledged is lost), and the next inputs are handed over (at most one transition in flight).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pledger import errors
from pledger.engine import remarks
from pledger.engine.active_run import ActiveRun, in_no_inbox
from pledger.engine.alarms import Alarms
from pledger.engine.births import Births
from pledger.engine.building import Builder, InFlight
from pledger.engine.growth import Growth, take_warning
from pledger.engine.interrupts import is_interrupt
from pledger.engine.leaving import AGAIN_S, Leaving
from pledger.engine.pauses import KnownPauses
from pledger.engine.port.operations import LogAttempts
from pledger.engine.task_rows import record_of
from pledger.engine.updating import Updates
from pledger.engine.verdicts import lost_in_the_gap
from pledger.history import events
from pledger.history.events import ActivityCompleted, ActivityFailed
from pledger.machine.generators import stage
from pledger.machine.machine import Machine

if TYPE_CHECKING:
    import asyncio

    from pledger.engine.activities import Activities
    from pledger.engine.attempt import Attempt
    from pledger.engine.committer import Committer
    from pledger.engine.listener import Listener
    from pledger.engine.meter import WorkerMeter
    from pledger.engine.port.records import TaskRow
    from pledger.engine.session import LedgerClock
    from pledger.engine.vault import Vault
    from pledger.engine.watchdog import Watchdog
    from pledger.history.events import Input
    from pledger.machine.definitions import WorkflowDefinition
    from pledger.machine.identity import RunIdentity
    from pledger.machine.interception import WorkflowInboundInterceptor

logger = logging.getLogger("pledger.engine")


class Runs:
    """The active runs of one worker, by run_key.

    session_key: whose they are. codes: the identity of the code of each workflow, by its type. births: those that start
    here. leaving: those that leave while they are open. meter: told what they come to; None costs nothing.
    """

    def __init__(
        self,
        *,
        definitions: dict[str, WorkflowDefinition],
        committer: Committer,
        clock: LedgerClock,
        loop: asyncio.AbstractEventLoop,
        watchdog: Watchdog,
        listener: Listener,
        session_key: Callable[[], int],
        task_queue: str,
        codes: dict[str, str],
        cached_max: int,
        payload_bytes_max: int,
        growth: Growth,
        commands_max: int,
        interceptors: Sequence[type[WorkflowInboundInterceptor]] = (),
        worker: str,
        vault: Vault,
        meter: WorkerMeter | None = None,
    ) -> None:
        self.meter = meter
        self.definitions = definitions
        self.active: dict[int, ActiveRun] = {}
        self.activities: Activities  # see `meet`
        self._committer = committer
        self._clock = clock
        self._loop = loop
        self.watchdog = watchdog
        self._listener = listener
        self._session_key = session_key
        self.codes = codes
        self._vault = vault
        self._cached_max = cached_max
        self._payload_bytes_max = payload_bytes_max
        self.growth = growth
        self._commands_max = commands_max
        self._interceptors = interceptors
        self._worker = worker
        self._builder = Builder(codes=codes, task_queue=task_queue, worker=worker, vault=vault)
        self._ready: deque[ActiveRun] = deque()
        self.births = Births(self, committer=committer, loop=loop, listener=listener, session_key=session_key)
        self._unborn = self.births.unborn
        self.leaving = Leaving(
            self, committer=committer, clock=clock, loop=loop, listener=listener, cached_max=cached_max
        )
        self.updates = Updates(self)
        self._alarms = Alarms(loop, clock, self._ring)
        self.pauses = KnownPauses(self, loop, task_queue)
        committer.on_turn(self.prepare)

    @property
    def claiming_codes(self) -> dict[str, str]:
        """The codes by which runs are claimed, and blocked: with other keys at hand they are others, so that a run that
        was blocked for want of a key is tried again."""
        lack = self._vault.lack if self._vault.missing else ""
        return {name: code + lack for name, code in self.codes.items()} if lack else self.codes

    def look_for_keys(self) -> None:
        if self._vault.missing:
            self._vault.look_for_keys()

    @property
    def waiting(self) -> int:
        """How many runs have something on its way to the store."""
        return self.births.in_flight + sum(run.in_flight for run in self.active.values())

    def meet(self, activities: Activities) -> None:
        """The activities of the same worker: the two know each other."""
        self.activities = self._builder.activities = activities

    # Coming and going -------------------------------------------------------------------------------------------------

    def new_machine(self, definition: WorkflowDefinition, identity: RunIdentity) -> Machine:
        return Machine(
            definition,
            identity,
            payload_bytes_max=self._payload_bytes_max,
            commands_max=self._commands_max,
            interceptors=self._interceptors,
        )

    def holds(self, owner: int | None) -> bool:
        """Whether `owner` is the session that this worker has now: what an earlier one took belongs to others."""
        return owner == self._session_key()

    def adopt(self, run: ActiveRun) -> None:
        """A claimed run was loaded, with what waited for it: it lives here from now on."""
        self.active[run.run_key] = run
        self.arm(run)
        if self.pauses.covers(run):
            self.pauses.set_aside(run)
        elif run.has_work:
            self.make_ready(run)

    def make_ready(self, run: ActiveRun) -> None:
        """The run has work. One that is being handed back does none: its inputs are stored too, and wake it there."""
        if not (run.ready or run.in_flight or run.gone or run.releasing):
            run.ready = True
            if self.meter is not None:
                run.ready_s = self._loop.time()
            self._ready.append(run)
            self._committer.kick()

    def forget(self, run: ActiveRun, reason: str) -> None:
        """The run is no longer ours, or closed: it leaves memory without a trace."""
        run.gone = True
        if self.active.get(run.run_key) is run:
            del self.active[run.run_key]
        pending = [*run.machine.pending_event_ids(), *run.machine.given_up]
        if pending:
            self.activities.abandon(run.run_key, pending, reason)
        self.leaving.dispose(run.machine)
        if run.asks:
            self.updates.forget(run)
        self._at_rest(run)

    def ended_elsewhere(self, run: ActiveRun) -> None:
        """A client ended the run from outside, here or in another process: its next append would be refused."""
        if not run.gone:
            self.forget(run, "the run was ended from outside")
            self._listener.run_changed(run.run_key)

    def forget_all(self, reason: str) -> None:
        """The session's lease is gone, and with it every run."""
        for run in list(self.active.values()):
            self._loop.call_soon(self.forget, run, reason)
        self._ready.clear()

    # What reaches a run -----------------------------------------------------------------------------------------------

    def outcome(
        self, attempt: Attempt, outcome: ActivityCompleted | ActivityFailed, *, fence: int | None, row: bool
    ) -> bool:
        """See `outcomes.Runs`."""
        run = self.active.get(attempt.run_key)
        if run is None or run.gone or run.releasing or (fence is not None and run.fence != fence):
            return False  # a run that is being handed back makes no more transitions here: the outcome would be lost
        run.inputs.append(outcome)
        run.origins.append(-attempt.event_id if row else 0)
        run.outcomes.append((attempt, outcome))
        if not run.ready and not run.in_flight:  # make_ready, written out: every step's path
            run.ready = True
            if self.meter is not None:
                run.ready_s = self._loop.time()
            self._ready.append(run)
            self._committer.kick()
        return True

    def recorded(self, attempt: Attempt, outcome: ActivityCompleted | ActivityFailed) -> None:
        """The outcome is in the task row: the run takes it at once, if it is here, and has not read it there before."""
        run = self.active.get(attempt.run_key)
        if run is None or run.gone or run.releasing:
            # Whoever has it, or takes it, finds it in the row.
            self._listener.recorded_elsewhere(attempt.run_key, attempt.identity.task_queue)
            return
        if run.machine.awaits(attempt.event_id) and -attempt.event_id not in run.origins:
            run.inputs.append(outcome)
            run.origins.append(-attempt.event_id)
            run.outcomes.append((attempt, outcome))
            self.make_ready(run)

    def awaits(self, run_key: int, fence: int, event_id: int) -> bool:
        run = self.active.get(run_key)
        return run is not None and run.fence == fence and run.machine.awaits(event_id)

    def requeued(self, task: TaskRow) -> None:
        self._listener.task_queued(task.due_ms, task.task_queue)

    def attempts_ended(self) -> None:
        self._listener.attempts_ended()

    def published(self, chain_key: int) -> None:
        self._listener.published(chain_key)

    def in_doubt(self) -> None:
        self._listener.in_doubt()

    def arm(self, run: ActiveRun) -> None:
        """Have the run rung when it is due."""
        due_ms = run.due_ms()
        if due_ms is not None and due_ms != run.armed_ms:
            run.armed_ms = due_ms
            self._alarms.set(run.run_key, due_ms)

    def _ring(self, run_keys: list[int]) -> None:
        now_ms = self._clock.now_ms()
        for run_key in run_keys:
            run = self.active.get(run_key)
            if run is None or run.gone:
                continue
            run.armed_ms = None
            for fired in run.machine.due_timers(now_ms):
                run.add(fired)
            if run.inputs or (run.deadline_ms is not None and run.deadline_ms <= now_ms):
                # Armed again once this is written: a deadline that has passed would ring without end until then.
                self.make_ready(run)
            else:
                self.arm(run)

    # Transitions ------------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """The committer's turn: activate what is ready and submit the transitions."""
        if self._ready or self._unborn:
            now_ms = self._clock.now_ms()
            try:
                with stage():
                    while self._ready:
                        run = self._ready.popleft()
                        run.ready = False
                        if not (run.gone or run.in_flight or run.releasing or run.held):
                            self._activate(run, now_ms)
                    while self._unborn:
                        self.births.bear(self._unborn.popleft(), now_ms)
            finally:
                if self._ready or self._unborn:
                    # One raised, which is a bug of ours. It does not take the others with it: they have the next turn.
                    self._loop.call_soon(self._committer.kick)
        if len(self.active) > self._cached_max:
            self.leaving.evict()

    def _activate(self, run: ActiveRun, now_ms: int) -> None:
        try:
            built = self.transition(run, now_ms)
        except BaseException as error:
            if is_interrupt(error):
                self.interrupted(run)
                raise
            self.leaving.block(run, error)
            return
        if built is not None:
            run.in_flight = True
            self._committer.submit(built.append, built.settle)
        elif run.waiting:  # updates were all that it had to do, and none was let through
            self._loop.call_soon(self._rest, run)

    def transition(self, run: ActiveRun, now_ms: int) -> InFlight | None:  # noqa: C901 - every step goes this way: written out
        """Activate the run with its inputs and build the append; None without inputs. Raises what blocks the run.

        now_ms: the time of the turn; a run's own time does not go back when it moves to a worker that is behind.
        """
        now_ms = max(run.time_ms, now_ms)
        if run.machine.unrecorded and (run.deadline_ms is None or run.deadline_ms > now_ms):
            # The code went on at the time of the transition before: its inputs come when all of that is recorded.
            return self._builder.build(self, run, [], [], run.machine.record_more(), run.time_ms)
        inputs, origins = run.inputs, run.origins
        run.inputs, run.origins = [], []
        if run.outcomes:
            run.outcomes_applied, run.outcomes = run.outcomes, []
        if run.deadline_ms is not None and run.deadline_ms <= now_ms:
            return self._builder.build(self, run, [events.RunTimedOut()], [0], [], now_ms, timed_out=True)
        watchdog, machine = self.watchdog, run.machine
        if run.last_event >= run.event_mark or machine.size >= run.byte_mark:
            inputs, origins = self.growth.look(run, inputs, origins, now_ms)
        if run.has_updates:
            self.updates.admit(run, inputs, origins, now_ms)
        if not inputs:
            return None
        watchdog.activation += 1
        watchdog.identity = run.identity
        began_s = 0.0 if self.meter is None else self._loop.time()
        try:
            consumed, commands = machine.activate_staged(inputs, time_ms=now_ms)
        finally:
            watchdog.identity = None
            if watchdog.interrupted:
                watchdog.delivered()
        left: Sequence[Input] = ()
        if consumed < len(inputs):
            left = in_no_inbox(inputs[consumed:], origins[consumed:])
            inputs, origins = inputs[:consumed], origins[:consumed]
        if self.meter is not None:
            self._measure(self.meter, run, began_s)
        built = self._builder.build(self, run, inputs, origins, commands, now_ms, left=left)
        if machine.refusals or run.growth is not None:
            built.append.attempts = [*self._builder.signals_told(run, now_ms), *take_warning(run)]
        if machine.unfinished or machine.unawaited or machine.unstarted:
            remarks.tell(machine)
        return built

    def _measure(self, meter: WorkerMeter, run: ActiveRun, began_s: float) -> None:
        """Its code has gone on from then until now."""
        name, machine = run.identity.workflow_type, run.machine
        waited_s, run.waited_ms = began_s - run.ready_s + run.waited_ms / 1000, 0
        meter.activated(name, waited_s, self._loop.time() - began_s, cached=run.met)
        run.met = True
        if machine.refusals and (refused := sum(why is not None for *_, why in machine.refusals)):
            meter.refused(name, refused)
        if run.growth is not None:
            meter.warned(name)

    # After the commit -------------------------------------------------------------------------------------------------

    def won(self, built: InFlight) -> None:  # noqa: C901 - as `transition`
        """The transition is durable: go on from it."""
        run, append = built.run, built.append
        run.in_flight = False
        run.head = append.transition.checksum
        run.last_event = append.last_event
        run.time_ms = append.time_ms
        run.machine.size += built.size
        run.outcomes_applied = ()
        run.code = self.codes[run.identity.workflow_type]
        if run.asks:
            self.updates.won(built)
        if append.consumed:
            run.delivered = (*run.delivered, *[message_key for message_key, _ in append.consumed])
        if append.closed is not None:
            run.closed = True
            if self.meter is not None:
                took_s = max(0, append.time_ms - run.started_ms) / 1000
                self.meter.closed(run.identity.workflow_type, append.closed, took_s)
            self.forget(run, f"the run closed as {append.closed}")
            self._listener.run_closed(
                run.run_key,
                append.closed,
                built.commands[-1] if built.commands else None,
                concerns_others=append.report is not None or append.has_dependants or bool(append.posts),
            )
            if append.successor is not None:
                self._listener.run_continued(append.successor.task_queue)
            return
        if run.gone:
            self.activities.admission.unreserve(built.eager)
            return
        self.active[run.run_key] = self.active.pop(run.run_key)  # newest last: see `Leaving.evict`
        if run.held:
            self.pauses.won(built)
        for event_id, command in built.eager:
            place = (run.run_key, run.fence, run.identity, event_id)
            self.activities.start_eager(*place, command, append.time_ms, run.deadline_ms)
        if append.tasks or append.cancelled or append.dropped or append.posts or built.unknown:
            self._settle_others(built)
        if append.due_ms is not None:
            self.arm(run)
        if run.has_work:
            self.make_ready(run)
        else:
            self._rest(run)

    def _settle_others(self, built: InFlight) -> None:
        """Other runs, and activities that run elsewhere, that are cancelled, or that never begin."""
        run, append = built.run, built.append
        if append.posts:
            self._listener.posted(run.run_key)
        for event_id in built.unknown:
            self._never_begun(run, event_id)
        for row in append.unwritten:
            self.activities.row_written(run.fence, row)
        for event_id in append.cancelled:
            self.activities.cancel(run.run_key, event_id, "the workflow cancelled the activity")
        if append.dropped:
            self._listener.attempts_ended()
        queues = {row.task_queue for row in append.tasks}
        if append.cancelled:  # whoever looks settles what waited
            queues.add(run.identity.task_queue)
        for task_queue in sorted(queues):
            self._listener.task_queued(append.time_ms, task_queue)

    def _never_begun(self, run: ActiveRun, event_id: int) -> None:
        """An activity that may have run in the part of the ledger that is gone. A worker that dies now leaves it
        pending without an attempt, which comes to the same."""
        failure, now_ms = lost_in_the_gap(), self._clock.now_ms()
        run.add(ActivityFailed(event_id, failure, "maximum_attempts", 1))
        record = record_of((run.run_key, event_id, 1), "lost", None, now_ms, self._worker, failure)
        self._committer.submit(LogAttempts([record]), lambda _: None)

    def _rest(self, run: ActiveRun) -> None:
        if run.waiting and (run.at_rest or run.gone):
            self._at_rest(run)
        if len(self.active) > self._cached_max:
            self._committer.kick()  # for one turn more: now that it rests, it or an older one may leave

    def lost(self, built: InFlight) -> None:
        """Somebody else owns the run, or closed it: what we did was never real."""
        self.activities.admission.unreserve(built.eager)
        built.run.in_flight = False
        logger.info("%s was taken over or closed elsewhere", built.run.identity)
        self.forget(built.run, "another worker owns the run")
        # Or nobody else does, and the ledger has gone back behind what is known here: then it is to be loaded anew.
        self._listener.in_doubt()

    def failed(self, built: InFlight, error: Exception) -> None:
        """The store could not write. The same transition is tried again: if it did get through after all, the store
        knows it and answers WON."""
        if built.run.gone:
            self.activities.admission.unreserve(built.eager)
        elif isinstance(error, errors.StoreUnavailableError):
            self._loop.call_later(AGAIN_S, self._committer.submit, built.append, built.settle)
        else:
            self.activities.admission.unreserve(built.eager)
            built.run.in_flight = False
            self.leaving.block(built.run, error)

    def interrupted(self, run: ActiveRun) -> None:
        """The program was ended in the midst of it: what was begun with the run is forgotten, and whoever has it next
        goes by its history. Else it would look at rest, with inputs that are gone."""
        if not run.gone:
            self.leaving.begin_again(run)

    def when_at_rest(self, run: ActiveRun, ask: Callable[[], None]) -> None:
        """Call once nothing of the run is in flight, so that nobody sees what a crash could take back.

        Called from a plain callback of the loop; also when the run has left memory (`run.gone` says so).
        """
        if run.gone or (run.at_rest and run.last_event):
            self._loop.call_soon(self._ask, run, ask)
        else:
            run.waiting = (*run.waiting, ask)

    def _ask(self, run: ActiveRun, ask: Callable[[], None]) -> None:
        if run.gone or run.at_rest:
            ask()
        else:
            run.waiting = (*run.waiting, ask)

    def _at_rest(self, run: ActiveRun) -> None:
        waiting, run.waiting = run.waiting, ()
        for ask in waiting:
            try:
                ask()
            except BaseException as error:  # a bug of ours; neither the others nor the run suffer for it
                if is_interrupt(error):
                    raise
                self._loop.call_exception_handler({"message": f"{run.identity} could not be asked", "exception": error})

    def query(self, run: ActiveRun, name: str, args: bytes) -> bytes:
        """Ask a run at rest. Raises what `Machine.query` raises."""
        try:
            return self.watchdog.watch(run.identity, run.machine.query, name, args)
        except errors.QueryFailedError as error:
            if error.__cause__ is not None and is_interrupt(error.__cause__):
                raise error.__cause__ from None
            raise
        finally:
            if run.machine.spoiled and not run.releasing:
                self.leaving.begin_again(run)

    def stop(self) -> None:
        self._alarms.stop()
        self._committer.off_turn(self.prepare)
