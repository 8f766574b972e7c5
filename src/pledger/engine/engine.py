"""One worker: its session, runs, activities and intake, wired together. Everything that could differ between a live
process and a simulation is handed in: store, clock, heart, randomness, the loop it is created on."""

from __future__ import annotations

import asyncio
import functools
import logging
import random
from typing import TYPE_CHECKING, Any, Final, Literal

from pledger.engine.activities import Activities
from pledger.engine.auditor import Auditor
from pledger.engine.births import Birth
from pledger.engine.bounds import bounds_of
from pledger.engine.budgets import Budgets
from pledger.engine.growth import Growth
from pledger.engine.intake import Intake
from pledger.engine.interrupts import is_interrupt
from pledger.engine.limits import Limits
from pledger.engine.loading import Loader
from pledger.engine.meter import Slots, Standing
from pledger.engine.partings import Partings
from pledger.engine.port.answers import Answer, Reply, Sent
from pledger.engine.runs import Runs
from pledger.engine.secrets import SecretResolver, Secrets
from pledger.engine.session import Heart, LedgerClock, Session
from pledger.engine.sweeper import Sweeper, keeps
from pledger.engine.updating import Answer as UpdateAnswer
from pledger.engine.updating import Ask, Told
from pledger.engine.verification import Verification
from pledger.engine.watchdog import Watchdog
from pledger.history.events import Command, RunStarted, SignalReceived, UpdateAccepted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pledger.engine.connection import Connection
    from pledger.engine.interception import ActivityInboundInterceptor
    from pledger.engine.port.operations import StartRun
    from pledger.engine.port.records import RunStatus
    from pledger.history.placement import Limit
    from pledger.machine.definitions import ActivityDefinition, WorkflowDefinition
    from pledger.machine.identity import RunIdentity
    from pledger.machine.interception import WorkflowInboundInterceptor

logger = logging.getLogger("pledger.engine")

#: Between two tries to take a new lease while the store cannot be reached.
REOPEN_S: Final = 1.0
#: Between two looks whether the transitions of a worker that stops are written.
IN_FLIGHT_LOOK_S: Final = 0.05


class Engine:
    """Drives the runs of one task queue in one process.

    code: the identity of all its code. codes: that of each workflow, by its type; None where they are all `code`. A
    block is lifted by another identity of the run's own workflow, so that two workers which serve different sets of
    workflows from the same code do not hand a blocked run back and forth. transactions: the URL of each, by its name.
    queue_limits: of all activities of the queue. budgets: of what its activities depend on, None where none states any.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        workflows: Iterable[WorkflowDefinition],
        activities: Iterable[ActivityDefinition[Any, Any]],
        task_queue: str,
        code: str,
        codes: dict[str, str] | None = None,
        identity: str,
        limits: Limits,
        heart: Heart,
        watchdog: Watchdog,
        randomness: random.Random,
        transactions: Mapping[str, str | None] | None = None,
        secrets: Sequence[SecretResolver] = (),
        queue_limits: Sequence[Limit] = (),
        around_activities: ActivityInboundInterceptor | None = None,
        around_workflows: Sequence[type[WorkflowInboundInterceptor]] = (),
    ) -> None:
        self.connection = connection
        self._transactions = transactions or {}
        self._secrets = Secrets(secrets)
        self._around_activities, self._around_workflows = around_activities, around_workflows
        self.task_queue = task_queue
        self.identity = identity
        self.workflows = {each.name: each for each in workflows}
        self.code = code
        self._limits = limits
        self._heart = heart
        self._watchdog = watchdog
        self._loop = asyncio.get_running_loop()
        self._clock: LedgerClock = connection.clock
        self._stopping = False
        meter = connection.meter
        self._meter = None if meter is None else meter.worker(task_queue)
        self.session = self._new_session()
        self.runs = self._new_runs(codes or dict.fromkeys(self.workflows, code))
        definitions = {each.name: each for each in activities}
        self._bounds = bounds_of(definitions.values(), queue_limits)
        self.budgets = self._new_budgets()
        self.activities = self._new_activities(definitions, randomness)
        self.runs.meet(self.activities)
        self.partings = Partings(connection, self._loop, connection.tell_workers)
        self.intake = self._new_intake(self._new_loader(randomness), randomness)
        self.activities.admission.slots.freed = self.intake.slot_freed
        self._verification = Verification(
            connection.store,
            self.workflows,
            self._loop,
            randomness,
            limits.verified_share,
            limits.payload_bytes_max,
            watchdog=watchdog,
            codes=self.runs.codes,
            interceptors=around_workflows,
        )
        self._sweeper = Sweeper(
            connection.store,
            self._loop,
            random.Random(randomness.random()),  # noqa: S311 - jitter; of its own, since it draws when others do not
            session_key=self._session_key,
            namespace=connection.namespace,
            keeps=keeps(self.workflows.values(), limits.retention_ms),
        )
        self._auditor = Auditor(
            connection.store,
            self._loop,
            random.Random(self.code + self.identity),  # noqa: S311 - jitter; nothing else draws from it
            session_key=self._session_key,
            namespace=connection.namespace,
        )

    # Its parts --------------------------------------------------------------------------------------------------------

    def _new_runs(self, codes: dict[str, str]) -> Runs:
        return Runs(
            definitions=self.workflows,
            committer=self.connection.committer,
            clock=self._clock,
            loop=self._loop,
            watchdog=self._watchdog,
            listener=self,
            session_key=self._session_key,
            task_queue=self.task_queue,
            codes=codes,
            cached_max=self._limits.cached_runs_max,
            payload_bytes_max=self._limits.payload_bytes_max,
            growth=Growth(self._limits.history_events_max, self._limits.history_bytes_max, self.identity),
            commands_max=self._limits.commands_max,
            worker=self.identity,
            vault=self.connection.vault,
            interceptors=self._around_workflows,
            meter=self._meter,
        )

    def _new_budgets(self) -> Budgets | None:
        if not self._bounds.budgets:
            return None
        connection = self.connection
        place = (connection.store, self._loop, connection.namespace)
        return Budgets(*place, self._bounds, self.attempts_ended)

    def _new_activities(
        self, definitions: dict[str, ActivityDefinition[Any, Any]], randomness: random.Random
    ) -> Activities:
        return Activities(
            definitions=definitions,
            committer=self.connection.committer,
            clock=self._clock,
            loop=self._loop,
            randomness=randomness,
            worker=self.identity,
            session_key=self._session_key,
            runs=self.runs,
            concurrent_max=self._limits.concurrent_activities_max,
            threads_max=self._limits.activity_threads_max,
            payload_bytes_max=self._limits.payload_bytes_max,
            transactions_max=self._limits.transactions_max,
            store=self.connection.store,
            transactions=self._transactions,
            secrets=self._secrets,
            bounds=self._bounds,
            budgets=self.budgets,
            keyring=self.connection.keyring,
            inbound=self._around_activities,
            meter=self._meter,
        )

    def _new_loader(self, randomness: random.Random) -> Loader:
        return Loader(
            store=self.connection.store,
            runs=self.runs,
            activities=self.activities,
            committer=self.connection.committer,
            clock=self._clock,
            loop=self._loop,
            randomness=randomness,
            worker=self.identity,
            partings=self.partings.finish,
        )

    def _new_intake(self, loader: Loader, randomness: random.Random) -> Intake:
        return Intake(
            store=self.connection.store,
            runs=self.runs,
            activities=self.activities,
            loader=loader,
            committer=self.connection.committer,
            clock=self._clock,
            loop=self._loop,
            randomness=randomness,
            worker=self.identity,
            session_key=self._session_key,
            namespace=self.connection.namespace,
            task_queue=self.task_queue,
            cached_max=self._limits.cached_runs_max,
            lease_ms=self._limits.lease_ms,
            on_store=functools.partial(self.connection.store_told, "reads"),
            partings=self.partings.see_to_them,
        )

    def _new_session(self) -> Session:
        return Session(
            self.connection.store,
            self._clock,
            self._heart,
            lease_ms=self._limits.lease_ms,
            on_lost=self._lost_lease,
            on_store=functools.partial(self.connection.store_told, "lease"),
        )

    def _session_key(self) -> int:
        """Of the session that the worker has now."""
        return self.session.key

    # Life -------------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        try:
            await self._take_place()
        except BaseException:
            self.runs.stop()  # a program that tries again has another engine, and the committer none of this one
            self.activities.close()
            self._unmeter()
            raise
        self._watchdog.start()
        self.intake.start()
        self._sweeper.start()
        self._auditor.start()
        self.connection.attach(self)
        if self._meter is not None:
            self._meter.begun(self._standing)

    async def _take_place(self) -> None:
        """All of the start that may fail."""
        if self._transactions:
            await self.connection.store.prepare_transactions(
                dict.fromkeys(self._transactions.values()), self._limits.transactions_max
            )
        if rules := self._bounds.rules:
            await self.connection.store.state_limits(self.connection.namespace, rules)
        if self.budgets is not None:
            await self.budgets.start()
        await self.connection.keyring.read()
        await self.session.open(self.identity, self.connection.namespace, self.task_queue, self.code)

    async def stop(self, grace_s: float) -> None:
        """Claim nothing more, let attempts finish for `grace_s`, hand the runs back, give the lease up."""
        self._stopping = True
        self.activities.leave()
        try:
            await self._sweeper.stop()
            await self._auditor.stop()
            await self.intake.stop()
            await self.partings.stop()
            self.connection.detach(self)
            await self.connection.committer.drain()  # what was placed here before has begun after this
            if not await self.activities.under_way.wait_idle(grace_s):
                logger.warning(
                    "%d activities did not end within the grace period of %g s; other workers will try them again",
                    self.activities.under_way.running,
                    grace_s,
                )
                self.activities.interrupt()
                await self.activities.under_way.wait_idle(1.0)
            if self.budgets is not None:
                await self.budgets.stop()
            await self.connection.committer.drain()
            await self._await_transitions(max(grace_s, 1.0))
            await self._hand_back()
            await self._verification.stop()
        finally:
            # Also when the stop itself was cancelled: no lease outlives its worker.
            self.runs.stop()
            self.activities.close()
            self._watchdog.stop()
            self._heart.stop()
            self._unmeter()
        await self.session.close()

    def _unmeter(self) -> None:
        if self._meter is not None:
            self._meter.stopped()

    def _standing(self) -> Standing:
        """Asked from other threads: it only reads numbers."""
        slots = self.activities.admission.slots
        kinds = zip(("ActivityWorker", "ActivityThread", "Transaction"), slots.all, slots.free(), strict=True)
        return Standing(len(self.runs.active), tuple(Slots(*each) for each in kinds))

    async def _await_transitions(self, patience_s: float) -> None:
        """Of those that the store could not take, and that are to be tried again: results that are in no row would be
        lost with them."""
        until = self._loop.time() + patience_s
        while any(run.in_flight for run in self.runs.active.values()) and self._loop.time() < until:
            await asyncio.sleep(IN_FLIGHT_LOOK_S)
            await self.connection.committer.drain()

    async def _hand_back(self) -> None:
        for run in list(self.runs.active.values()):
            self.runs.leaving.release(run)
        await self.connection.committer.drain()

    def _lost_lease(self) -> None:
        """The session was buried while this process slept: nothing here is ours any more. Begin anew."""
        logger.error("the lease of %s is lost; its runs belong to others now", self.identity)
        if self._meter is not None:
            self._meter.lease_lost()
        self.runs.forget_all("the worker lost its lease")
        self.activities.stop_claimed("the worker lost its lease")
        self._heart.stop()
        if not self._stopping:
            self._loop.create_task(self._reopen(), name="pledger-reopen")

    async def _reopen(self) -> None:
        self._heart = type(self._heart)(*self.connection.heart_arguments)
        self.session = self._new_session()
        while not self._stopping:
            try:
                await self.session.open(self.identity, self.connection.namespace, self.task_queue, self.code)
            except Exception as error:  # noqa: BLE001 - whatever it is: a worker without a lease does nothing
                self.connection.store_told("lease", error)
                await asyncio.sleep(REOPEN_S)
            else:
                self.connection.store_told("lease", None)
                self.intake.changed()
                return

    # From clients in this process -------------------------------------------------------------------------------------

    def takes(self, workflow_type: str, task_queue: str) -> bool:
        """Whether a run may be born here."""
        known = task_queue == self.task_queue and workflow_type in self.workflows
        return known and not self._stopping and self.runs.pauses.takes(workflow_type)

    def begin(
        self,
        start: StartRun,
        started: RunStarted,
        identity: RunIdentity,
        done: Callable[[Answer], None],
        beside: SignalReceived | UpdateAccepted | None = None,
    ) -> None:
        """Start a run here. done: gets the answer of its start. beside: what is sent with it."""
        self.runs.births.begin(Birth(start, started, identity, done, beside))

    def message_sent(self, run_key: int, answer: Answer) -> None:
        """A message for the run was written. Was it there before, or is the answer lost, then nobody may have been told
        of it yet: so the run's mail is looked at, in case it is here."""
        owner = answer.owner if isinstance(answer, Sent) else self.session.key
        if owner is None:
            self.intake.changed()
        elif owner == self.session.key and answer is not Reply.CLOSED:
            self.intake.mail.arrived(run_key)

    async def query(self, run_key: int, name: str, args: bytes) -> bytes | None:
        """Ask a run that this worker holds; JSON, or None when the run has left memory before it could answer.

        Raises what the query raises.
        """
        run = self.runs.active[run_key]
        future: asyncio.Future[bytes | None] = self._loop.create_future()

        def ask() -> None:
            if future.done():
                return
            try:
                future.set_result(None if run.gone else self.runs.query(run, name, args))
            except BaseException as error:  # whatever it is, the caller must not be left waiting
                if is_interrupt(error):
                    raise
                future.set_exception(error)

        self.intake.mail.behind_mail(run_key, functools.partial(self.runs.when_at_rest, run, ask))
        return await future

    async def update(
        self, run_key: int, update: UpdateAccepted, until: Literal["accepted", "completed"]
    ) -> Told | None:
        """Send an update to a run that this worker holds; None when the run has left memory before it is known.

        Raises UpdateRejectedError, UnknownUpdateError, UpdateConflictError.
        """
        future: asyncio.Future[Told | None] = self._loop.create_future()

        def tell(answer: UpdateAnswer) -> None:
            if future.done():
                return
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)

        run = self.runs.active.get(run_key)
        if run is None:
            return None
        ask = Ask(update, until, tell)
        self.intake.mail.behind_mail(run_key, functools.partial(self.runs.updates.ask, run, ask))
        try:
            return await future
        finally:
            if ask in run.asks:  # whoever has waited for it has gone
                run.asks = tuple(each for each in run.asks if each is not ask)

    def terminated(self, run_key: int) -> None:
        """A client of this process ended the run from outside; the next append would have been refused."""
        run = self.runs.active.get(run_key)
        if run is not None:
            self._loop.call_soon(self.runs.ended_elsewhere, run)

    def changed(self) -> None:
        """Somebody may have written: there may be something to claim, or news for a run that is here."""
        self.intake.changed()

    # What became of runs ----------------------------------------------------------------------------------------------

    def run_closed(
        self, run_key: int, status: RunStatus, command: Command | None, *, concerns_others: bool = False
    ) -> None:
        self.connection.run_closed(run_key, status, command)
        self.attempts_ended()
        self.intake.claims.run_left()
        self._verification.closed(run_key)
        if concerns_others:
            self.connection.tell_workers()

    def run_continued(self, task_queue: str) -> None:
        for each in self.connection.engines:
            if each.task_queue == task_queue:
                each.changed()

    def run_changed(self, run_key: int) -> None:
        self.connection.run_changed(run_key)
        self.intake.claims.run_left()

    def run_released(self, due_ms: int | None) -> None:
        self.intake.due(due_ms)
        self.intake.claims.run_left()

    def task_queued(self, due_ms: int, task_queue: str) -> None:
        """By this worker: others of this process are told, of other processes the store tells theirs."""
        for each in self.connection.engines:
            if each is self or each.task_queue == task_queue:
                each.due(due_ms)

    def due(self, due_ms: int) -> None:
        self.intake.due(due_ms)

    @property
    def due_ms(self) -> int | None:
        """See `Intake.due_ms`."""
        return self.intake.due_ms

    def recorded_elsewhere(self, run_key: int, task_queue: str) -> None:
        """The same of an outcome: its run may be that of another worker of this process, or of nobody."""
        owner = self.connection.owner_of(run_key)
        if owner is not None:
            owner.mail(run_key)
            return
        for each in self.connection.engines:
            if each.task_queue == task_queue:
                each.changed()

    def mail(self, run_key: int) -> None:
        self.intake.mail.arrived(run_key)

    def attempts_ended(self) -> None:
        """Slots may be free: whoever waits for one in this process is told, other processes see it in the store."""
        for each in self.connection.engines:
            each.intake.attempts_ended()

    def run_born(self, run_key: int) -> None:
        self.intake.mail.run_born(run_key)

    def posted(self, run_key: int) -> None:
        """Runs of any queue may have been started here, and any worker's may have mail."""
        self.intake.mail.arrived(run_key)
        self.connection.tell_workers()

    def published(self, chain_key: int) -> None:
        self.connection.followers.published(chain_key)

    def in_doubt(self) -> None:
        self.intake.in_doubt()
