"""Bringing claimed runs into memory, many by one question: histories are read, a long one in pages, verified, and
replayed; then each run gets what waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

import msgspec

from pledger import errors
from pledger.engine import blocks
from pledger.engine.active_run import ActiveRun
from pledger.engine.callbacks import in_callback
from pledger.engine.families import input_of
from pledger.engine.interrupts import is_interrupt
from pledger.engine.leaving import AGAIN_S
from pledger.engine.port.operations import Block, ConfirmClaim, LogAttempts, PutTask, Release
from pledger.engine.port.records import RESET_NAME, RunRow, TaskRow
from pledger.engine.port.verbs import Ledger
from pledger.engine.task_rows import decode_outcome, queued_row, record_of
from pledger.engine.update_rows import BESIDE_START, read_beside_start
from pledger.engine.verdicts import GiveUp, Retry, after_failure, worker_lost
from pledger.history import events, transition
from pledger.history.events import ActivityFailed, RunStarted
from pledger.history.sealing import MARK
from pledger.history.times import milliseconds
from pledger.history.transition import StoredTransition, Transition
from pledger.machine.identity import RunIdentity

if TYPE_CHECKING:
    from pledger.engine.activities import Activities
    from pledger.engine.committer import Committer
    from pledger.engine.port.records import Message, StoredRun
    from pledger.engine.port.verbs import Store
    from pledger.engine.runs import Runs
    from pledger.engine.session import LedgerClock

logger = logging.getLogger("pledger.engine")

#: Transitions read and replayed at a time: a bound on memory and on how long the loop is held.
PAGE: Final = 500
#: Those of the first page, when nobody knows yet how large they are, and as many bytes as the others are to have.
FIRST_PAGE: Final = 50
PAGE_BYTES: Final = 2_000_000
#: Runs that are brought into memory together, and the events of their histories: as many as a page has, of steps. So a
#: long history comes alone, and keeps nobody waiting.
TOGETHER_RUNS: Final = 100
TOGETHER_EVENTS: Final = 2 * PAGE
#: Claims in a row without progress from which a run comes alone. One has every run of a worker that died.
SUSPECT: Final = 2
_OUTCOMES: Final = (events.ActivityCompleted, events.ActivityFailed)
#: Before those are due again that are let go so that one of them is tried without them.
SUSPECT_AGAIN_MS: Final = 250


def together(rows: Sequence[RunRow]) -> Iterator[list[RunRow]]:
    """The rows in portions that are loaded together."""
    portion: list[RunRow] = []
    events_left = TOGETHER_EVENTS
    for row in rows:
        events_left -= row.last_event
        if portion and (events_left < 0 or len(portion) == TOGETHER_RUNS):
            yield portion
            portion, events_left = [], TOGETHER_EVENTS - row.last_event
        portion.append(row)
    if portion:
        yield portion


def identity_of(row: RunRow) -> RunIdentity:
    return RunIdentity(
        namespace=row.namespace,
        workflow_id=row.workflow_id,
        run_id=row.run_id,
        workflow_type=row.workflow_type,
        task_queue=row.task_queue,
    )


class HistoryReader:
    """Reads one history in order and verifies the chain of checksums as it goes.

    head, last_event, time_ms, code: of the newest transition read so far. sizes: of what was read, in bytes, until
    somebody takes them.
    """

    def __init__(self, store: Ledger, run_key: int, run_id: str) -> None:
        self._store = store
        self._run_key = run_key
        self._run_id = run_id
        self.head = transition.CHAIN_START
        self.last_event = 0
        self.time_ms = 0
        self.code: str | None = None
        self.sizes: list[int] = []
        self._size = 0

    async def next_page(self) -> list[Transition]:
        """The next transitions, [] at the end. Raises CorruptHistoryError naming the first event that is wrong."""
        try:
            rows = await self._store.read_history(self._run_key, self.last_event, self._page())
        except errors.CodecError as error:
            if error.unopened is not None:
                self._check(error.unopened)  # damage explains it better than a key
            raise
        page = [self.take(row) for row in rows]
        self._size = max((len(row.body) for row in rows), default=0)
        return page

    def _page(self) -> int:
        """Fewer transitions where those before were large; one, however large it is."""
        return max(1, min(PAGE, PAGE_BYTES // self._size)) if self._size else FIRST_PAGE

    def take_sizes(self) -> list[int]:
        sizes, self.sizes = self.sizes, []
        return sizes

    def take(self, row: StoredTransition) -> Transition:
        """The transition of the next row, verified. Raises CorruptHistoryError."""
        expected = self.last_event + 1
        head = self._check(row)
        try:
            found = transition.decode(row.body)
        except msgspec.MsgspecError as error:
            self._corrupt(expected, f"it cannot be decoded ({error})")
        self.head = head
        self.sizes.append(len(row.body))
        self.last_event += len(found.inputs) + len(found.commands)
        self.time_ms = found.time_ms
        self.code = found.code or self.code
        return found

    def _check(self, row: StoredTransition) -> bytes:
        """The checksum up to it. Raises CorruptHistoryError."""
        expected = self.last_event + 1
        if row.first_event_id != expected:
            self._corrupt(expected, f"it is missing (the next one found is {row.first_event_id})")
        head = transition.checksum(self.head, expected, row.kept or row.body)
        if head != row.checksum:
            self._corrupt(expected, "its checksum does not fit its content")
        return head

    def check_end(self, row: RunRow) -> None:
        """The history must end where the run's row says. Raises CorruptHistoryError."""
        if self.last_event != row.last_event or self.head != row.head:
            self._corrupt(
                self.last_event + 1, f"the run's row knows {row.last_event} events, the history {self.last_event}"
            )

    def _corrupt(self, event_id: int, what: str) -> NoReturn:
        raise errors.CorruptHistoryError(
            f"the history of run {self._run_id} is damaged at event {event_id}: {what}. The run is parked and nothing "
            f"is changed; restore the file from a backup, or look at what is left with `pledger history --json`",
            run_id=self._run_id,
            event_id=event_id,
        )


class _WentOnError(Exception):
    """now: the row of the run that was to be loaded as it was before."""

    def __init__(self, now: RunRow) -> None:
        super().__init__("the run has gone on")
        self.now = now


class _Loaded(NamedTuple):
    """with_row: the events of its activities that have a task row, or their outcome. since_ms: since when there has
    been something for it to do, as far as that is known."""

    row: RunRow
    run: ActiveRun
    with_row: set[int]
    since_ms: int | None


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """A bug of ours in what is done for one run must not take the others of its load with it."""
    try:
        yield
    except Exception:
        logger.exception("a run could not be loaded")


class Loader:
    """Loads claimed runs for one worker. partings: see `Partings.finish`."""

    def __init__(
        self,
        *,
        store: Store,
        runs: Runs,
        activities: Activities,
        committer: Committer,
        clock: LedgerClock,
        loop: asyncio.AbstractEventLoop,
        randomness: random.Random,
        worker: str,
        partings: Callable[[], Awaitable[None]],
    ) -> None:
        self._store = store
        self._runs = runs
        self._activities = activities
        self._committer = committer
        self._clock = clock
        self._loop = loop
        self._random = randomness
        self._worker = worker
        self._partings = partings
        self._singly = asyncio.Lock()

    async def load(self, rows: Sequence[RunRow]) -> None:
        """Bring the runs into memory by one question and hand each what waits; block those whose code or history cannot
        carry them on. What becomes of one is no matter of the others."""
        back: list[Release] = []
        await self._load_together([row for row in rows if row.claims < SUSPECT], back)
        if suspects := [row for row in rows if row.claims >= SUSPECT and not self._is_poison(row)]:
            await self._load_singly(suspects, back)
        if back:
            # Not at once: what can be written and not read would come and go as fast as both can.
            await asyncio.sleep(AGAIN_S)
            for release in back:
                self._runs.leaving.let_go(release)

    async def _load_together(self, rows: Sequence[RunRow], back: list[Release]) -> None:
        while rows:
            rows = [row for row in await self._load(rows, back) if not self._is_poison(row)]

    async def _load_singly(self, rows: Sequence[RunRow], back: list[Release]) -> None:
        """One of them may be what ends workers. So that the others do not end up as poison with it, each is loaded when
        those before it are known to be alive; and where one more end is too many, nobody else is held meanwhile."""
        rows = self._random.sample(rows, len(rows))
        last = [row for row in rows if row.claims >= blocks.CLAIMS_MAX]
        tried = [] if self._singly.locked() else last[:1]
        for row in last[len(tried) :]:
            self._runs.leaving.let_go(Release(row.run_key, row.fence, self._clock.now_ms() + SUSPECT_AGAIN_MS))
        async with self._singly:
            for row in [*(row for row in rows if row.claims < blocks.CLAIMS_MAX), *tried]:
                try:
                    await self._committer.write(LogAttempts(()))  # behind what has been confirmed
                except errors.StoreUnavailableError as error:
                    back += self._given_up(row, error, 1)
                else:
                    await self._load_together([row] if self._is_wanted(row) else [], back)

    def _is_poison(self, row: RunRow) -> bool:
        if row.claims <= blocks.CLAIMS_MAX:
            return False
        self._block(row, blocks.poison(row.claims, self._clock.now_ms(), row.last_event + 1))
        return True

    async def _load(self, rows: Sequence[RunRow], back: list[Release]) -> list[RunRow]:
        """The rows as they are now of those that have to be done anew: they have gone on since they were read.

        back: takes what is to be handed back.
        """
        try:
            keys = [row.run_key for row in rows]
            losses = await self._store.read_losses(keys)
            found = await self._store.read_stored_runs(keys, PAGE)
        except Exception as error:  # noqa: BLE001 - whatever it is, their owner has to say something of them
            if len(rows) > 1:
                # It may be what the store has of one of them; by itself that one is in nobody's way.
                return [now for row in rows for now in await self._load([row], back)]
            back += self._given_up(rows[0], error, 1)
            return []
        loaded: list[_Loaded] = []
        again: list[RunRow] = []
        try:
            for row, stored in zip(rows, found, strict=True):
                with _told():
                    match await self._bring(row, stored, losses):
                        case _Loaded() as one:
                            loaded.append(one)
                        case RunRow() as now:
                            again += [now] if self._is_wanted(now) else []
                        case releases:
                            back += releases
            if any(isinstance(one, events.RunReset) for each in loaded for one in each.run.inputs):
                await self._partings()  # the ids of its children are to be free
            # Not one by one: what they do next is written together.
            while loaded:
                with _told():
                    await self._adopt(loaded.pop(0))
        finally:
            for one in loaded:  # of a load that was stopped
                await self._dispose(one.run)
        return again

    async def _bring(
        self, row: RunRow, stored: StoredRun, losses: Mapping[int, bool]
    ) -> _Loaded | RunRow | Sequence[Release]:
        """The run, replayed and with its mail; where it has gone on meanwhile, its row as it is now; else see
        `_given_up`. losses: see `Losses.read_losses`."""
        machine = self._runs.new_machine(self._runs.definitions[row.workflow_type], identity_of(row))
        run = ActiveRun(
            machine.identity, machine, run_key=row.run_key, chain_key=row.chain_key, fence=row.fence, head=row.head
        )
        run.started_ms = row.started_ms
        meter = self._runs.meter
        began_s = 0.0 if meter is None else self._loop.time()
        try:
            self._doubt(run, losses)
            await self._replay(run, row, stored.transitions)
            if meter is not None and row.last_event:
                meter.replayed(row.workflow_type, self._loop.time() - began_s)
            for message in in_turn(stored.messages):
                take_message(run, message)
            for task in stored.tasks:
                take_outcome(run, task)
        except BaseException as error:
            await self._dispose(run)
            if isinstance(error, _WentOnError):
                return error.now
            if is_interrupt(error) or isinstance(error, asyncio.CancelledError):
                raise
            return self._given_up(row, error, machine.last_event + 1)
        # What a reset run is given first may have the outcome of an activity, which then needs no row.
        settled = {one.scheduled_event_id for one in run.inputs if isinstance(one, _OUTCOMES)}
        with_row = settled.union(task.event_id for task in stored.tasks)
        since_ms = min((each.sent_ms for each in stored.messages), default=row.due_ms or None)
        return _Loaded(row, run, with_row, since_ms)

    async def _adopt(self, loaded: _Loaded) -> None:
        row, run, with_row, since_ms = loaded
        if not self._is_wanted(row):
            await self._dispose(run)
            return
        self._take_lost(run, with_row)
        has_fired = [one for one in run.inputs if isinstance(one, events.TimerFired)]
        for fired in run.machine.due_timers(self._clock.now_ms()):
            if fired not in has_fired:
                run.add(fired)
        if since_ms is not None:
            run.waited_ms = max(0, self._clock.now_ms() - since_ms)
        self._runs.adopt(run)
        if row.claims:
            self._committer.submit(ConfirmClaim(row.run_key, row.fence), lambda _: None)

    def _given_up(self, row: RunRow, error: BaseException, event_id: int) -> Sequence[Release]:
        """Block the run, at the event where the error was met; or, where that may pass, what hands the run back to be
        claimed again: nothing is lost."""
        if isinstance(error, errors.StoreUnavailableError):
            return [Release(row.run_key, row.fence, 0)]
        self._block(row, blocks.reason(error, self._clock.now_ms(), event_id))
        return ()

    async def _dispose(self, run: ActiveRun) -> None:
        await in_callback(self._loop, functools.partial(self._runs.leaving.dispose, run.machine))

    def _is_wanted(self, row: RunRow) -> bool:
        """Whether the run is this worker's, and not in its memory yet, as of this claim."""
        there = self._runs.active.get(row.run_key)
        return self._runs.holds(row.owner) and (there is None or there.fence < row.fence)

    def _doubt(self, run: ActiveRun, losses: Mapping[int, bool]) -> None:
        """May the run have gone on in a part of the ledger that is gone? A signal, given again or timed out in the end,
        may lead to what it has led to there; so may a request to cancel that is given again."""
        moved = losses.get(run.run_key)
        if moved is not None:
            run.in_doubt = moved or run.machine.definition.takes_messages
            run.slept = not moved

    async def _replay(self, run: ActiveRun, row: RunRow, first: Sequence[StoredTransition]) -> None:
        try:
            await self._read(run, row, first)
        except errors.CorruptHistoryError:
            # Row and history are read one after the other: a write that came late, or of an owner meanwhile, is no
            # damage.
            now = await self._store.read_run(row.run_key)
            if (now.owner, now.fence, now.last_event) == (row.owner, row.fence, row.last_event):
                raise
            raise _WentOnError(now) from None

    async def _read(self, run: ActiveRun, row: RunRow, first: Sequence[StoredTransition]) -> None:
        """first: the transitions that are here already; those of a long history follow, page by page."""
        reader = HistoryReader(self._store, row.run_key, row.run_id)
        page = [reader.take(each) for each in first]
        while page:
            if run.last_event == 0 and isinstance(page[0].inputs[0], RunStarted):
                run.deadline_ms = page[0].inputs[0].deadline_ms
            replay = functools.partial(run.machine.replay_all, page, reader.take_sizes())
            await in_callback(self._loop, functools.partial(self._runs.watchdog.watch, run.identity, replay))
            run.last_event = reader.last_event
            if run.slept and any(isinstance(each, events.CancelRequested) for found in page for each in found.inputs):
                run.in_doubt = True
            page = await reader.next_page() if reader.last_event < row.last_event else []
        reader.check_end(row)
        run.time_ms, run.code = reader.time_ms, reader.code
        if run.last_event and (reset := run.machine.context.reset) is not None:
            run.deadline_ms = reset.deadline_ms

    def _take_lost(self, run: ActiveRun, with_row: set[int]) -> None:
        """What became of eager attempts that died with their worker: pending activities that have no row."""
        for event_id, (command, scheduled_ms) in run.machine.pending_activities().items():
            if event_id not in with_row:
                self._lost(run, event_id, command, scheduled_ms)

    def _lost(self, run: ActiveRun, event_id: int, command: events.ScheduleActivity, scheduled_ms: int) -> None:
        """An eager attempt without a row died with its worker: it counts, whether it had started or not."""
        now_ms = self._clock.now_ms()
        failure = worker_lost(1)
        verdict = after_failure(
            command,
            attempt=1,
            failure=failure,
            scheduled_ms=scheduled_ms,
            now_ms=now_ms,
            last_failure=None,
            draw=self._random.random(),
        )
        record = record_of((run.run_key, event_id, 1), "lost", scheduled_ms, now_ms, self._worker, failure)
        if self._runs.meter is not None:
            self._runs.meter.attempt_ended(command.activity_type, "worker_lost", None)
        match verdict:
            case GiveUp():
                run.add(ActivityFailed(event_id, verdict.failure, verdict.retry_state, 1))
                self._committer.submit(LogAttempts([record]), lambda _: None)
            case Retry():
                task = queued_row(
                    run.identity,
                    run.run_key,
                    event_id,
                    command,
                    number=2,
                    due_ms=verdict.due_ms,
                    scheduled_ms=scheduled_ms,
                    last_failure=verdict.failure,
                    run_deadline_ms=run.deadline_ms,
                )
                self._activities.rows.put(PutTask(run.fence, task, [record]))

    def _block(self, row: RunRow, reason: bytes) -> None:
        self._runs.leaving.note_block(row.workflow_type, reason)
        self._runs.leaving.let_go(Block(row.run_key, row.fence, reason, self._runs.claiming_codes[row.workflow_type]))


def in_turn(messages: Sequence[Message]) -> Sequence[Message]:
    """What a run begins with comes first: signals that waited for the chain before are older than the start of a run
    that was reset."""
    if len(messages) > 1 and any(message.kind == "start" for message in messages[1:]):
        return sorted(messages, key=lambda message: message.kind != "start")
    return messages


def take_message(run: ActiveRun, message: Message) -> None:  # noqa: C901 - a case for each kind
    """Make an inbox message an input of the run, once. Raises CorruptHistoryError for one that is damaged, and
    CodecError for one that could not be opened."""
    if MARK in message.body and message.kind != "cancel":
        raise _sealed(run, f"its {message.kind} ({message.message_id or 'the first message'})")
    if not run.take(message.message_key):
        return
    match message.kind:
        case "start" if message.name == RESET_NAME:
            _take_reset(run, message)
        case "start":
            try:
                started = transition.decode_started(message.body)
            except msgspec.MsgspecError as error:
                raise _damaged(run, "its start", error) from error
            _begin(run, started, message)
        case "signal" if message.name == BESIDE_START:
            try:
                update = read_beside_start(message.body)
            except msgspec.MsgspecError as error:
                raise _damaged(run, "the update that came with its start", error) from error
            run.add(update, message.message_key)
            run.has_updates = True
        case "signal":
            run.add(events.SignalReceived(message.name, message.body, message.message_id), message.message_key)
        case "cancel":
            reason = message.body.decode(errors="replace")
            run.in_doubt = run.in_doubt or run.slept
            run.add(events.CancelRequested(reason, message.message_id), message.message_key)
        case "notice":
            try:
                notice = input_of(message, run.identity.run_id)
            except ValueError as error:
                raise _damaged(run, f"the notice {message.message_id!r}", error) from error
            run.add(notice, message.message_key)
        case unknown:
            raise errors.InternalError(f"{run.identity} has a message of the unknown kind {unknown!r}")


def _begin(run: ActiveRun, started: RunStarted, message: Message) -> None:
    # Whoever started it may have known only the name; what stands at the definition is here.
    deadline, owner = run.machine.definition.deadline, run.machine.definition.owner
    if started.deadline_ms is None and deadline is not None:
        started = msgspec.structs.replace(started, deadline_ms=message.sent_ms + milliseconds(deadline))
    if started.owner is None and owner is not None:
        started = msgspec.structs.replace(started, owner=owner)
    if deadline is not None or owner is not None:
        run.terms = (started.owner, started.deadline_ms)
    run.deadline_ms = started.deadline_ms
    run.add(started, message.message_key)


def _take_reset(run: ActiveRun, message: Message) -> None:
    """What a run is given first that was reset, or that goes on for one which had not taken all of that. Raises
    CorruptHistoryError."""
    try:
        inputs = transition.decode_inputs(message.body)
    except msgspec.MsgspecError as error:
        raise _damaged(run, "what it is to begin with", error) from error
    reset = next((one for one in inputs if isinstance(one, events.RunReset)), None)
    run.given = len(inputs)
    for position, one in enumerate(inputs):
        if reset is None and isinstance(one, RunStarted):
            _begin(run, one, message)
        else:
            run.add(one, 0 if position else message.message_key)
    if reset is not None:
        run.deadline_ms = reset.deadline_ms


def take_outcome(run: ActiveRun, task: TaskRow) -> None:
    """Make the outcome that waits in a task row, if there is one, an input of the run. Raises CorruptHistoryError, and
    CodecError for one that could not be opened."""
    if task.state == "done" and task.outcome is not None:
        if MARK in task.outcome:
            raise _sealed(run, f"the outcome of {task.activity_type!r} (event {task.event_id})")
        try:
            outcome = decode_outcome(task.outcome)
        except msgspec.MsgspecError as error:
            raise _damaged(run, f"the outcome of {task.activity_type!r} (event {task.event_id})", error) from error
        run.add(outcome, -task.event_id)


def _sealed(run: ActiveRun, what: str) -> errors.CodecError:
    return errors.CodecError(f"{what} cannot be opened for {run.identity}; the worker's log says why. Nothing is lost")


def _damaged(run: ActiveRun, what: str, error: Exception) -> errors.CorruptHistoryError:
    return errors.CorruptHistoryError(
        f"{run.identity}: {what} is damaged ({error}). The run is parked and nothing is changed; restore the file from "
        f"a backup, or end the run",
        run_id=run.identity.run_id,
    )
