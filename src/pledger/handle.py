"""The handle of one run: talk to it, wait for it, look at it, end it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypedDict, TypeVar, Unpack, cast, overload

from pledger import errors
from pledger.engine import asking, blocks, completing, ending, pausing, reset_base, resetting
from pledger.engine.growth import warnings_of
from pledger.engine.kept import afterwards, check_kept, in_words
from pledger.engine.operators import person
from pledger.engine.port.answers import Reply
from pledger.engine.port.filters import NO_LABELS
from pledger.engine.port.operations import Send, inbox_room
from pledger.engine.port.records import PlaceRow, RunRow, RunStatus
from pledger.engine.resetting import ResetReapplyType
from pledger.following import Stream, check_offset
from pledger.history import events, failures, payloads
from pledger.history.calls import encode_call
from pledger.history.events import Command
from pledger.history.names import check_id, clean
from pledger.history.publishing import check_topic
from pledger.history.state import fold
from pledger.history.times import check_duration, utc
from pledger.history.transition import Transition
from pledger.interceptors import (
    CancelWorkflowInput,
    QueryWorkflowInput,
    ResetWorkflowInput,
    SignalWorkflowInput,
    StartWorkflowUpdateInput,
    TerminateWorkflowInput,
)
from pledger.machine.definitions import WorkflowDefinition
from pledger.machine.handlers import Handler, Kind, handler_name, mark_of
from pledger.updates import (
    ACCEPT_TIMEOUT,
    WorkflowUpdateHandle,
    WorkflowUpdateStage,
    check_update_id,
    start_update,
)
from pledger.views import (
    CancelVerdict,
    DependencySummary,
    Description,
    History,
    PauseSummary,
    ResetPlan,
    dependency_summary,
    pause_summary,
    reset_plan,
    reset_summary,
    run_summary,
    stream_summary,
)

if TYPE_CHECKING:
    from pledger.client import Client
    from pledger.engine.connection import Connection
    from pledger.machine.declaring import UpdateMethod

T = TypeVar("T")
R = TypeVar("R")
V = TypeVar("V")


class UpdateOptions(TypedDict, total=False):
    """How an update is sent, see `WorkflowHandle.start_update`."""

    id: str | None
    timeout: timedelta


_UNKNOWN: Final[dict[Kind, type[errors.UsageError]]] = {
    "signal": errors.UnknownSignalError,
    "query": errors.UnknownQueryError,
    "update": errors.UnknownUpdateError,
}
_A: Final[dict[Kind, str]] = {"signal": "a signal", "query": "a query", "update": "an update"}
#: How the names begin that no user's message has.
RESERVED: Final = "pledger:"

#: How long a query waits for a worker to answer.
QUERY_TIMEOUT: Final = timedelta(seconds=10)


class _End(NamedTuple):
    """How a run has ended, as its worker tells it in this process. reason: of one that was terminated."""

    status: RunStatus
    command: Command | None
    reason: str | None
    run_id: str


class ResetOptions(TypedDict, total=False):
    """How a run is reset, see `WorkflowHandle.reset`."""

    reason: str
    reapply: ResetReapplyType
    by: str | None
    request_id: str | None


class WorkflowHandle(Generic[T]):
    """A run and those that go on for it; or (without a run_id) the newest run of a workflow id.

    A chain is talked to as a whole: messages, queries, terminations and pauses are for the run that it has now, and the
    result is that of its last one. `describe` and `history` are of one run: of that which was asked for by its run_id,
    else of the newest.

    is_new: of a handle that `start_workflow` gave, whether that call started the run or found it; else None.
    """

    def __init__(
        self,
        client: Client,
        workflow_id: str,
        run_id: str | None,
        definition: WorkflowDefinition | None,
        run_key: int | None = None,
        chain_key: int | None = None,
        *,
        is_new: bool | None = None,
    ) -> None:
        self._client = client
        self.workflow_id = workflow_id
        self.run_id = run_id
        self.is_new = is_new
        self._definition = definition
        self._run_key = run_key
        self._chain_key = chain_key

    @property
    def _connection(self) -> Connection:
        return self._client.internals

    def __repr__(self) -> str:
        return f"<WorkflowHandle {self.workflow_id!r} run {self.run_id or '(newest)'}>"

    async def result(self, *, wait_while_blocked: bool = False, follow_runs: bool = True) -> T:
        """The result, once the run has closed; of one that has continued as new, that of the last run of its chain.

        wait_while_blocked: wait for the fix instead of raising when the run is blocked. follow_runs: False raises
        WorkflowContinuedAsNewError where another run goes on for this one.
        Raises WorkflowFailedError with the failure as cause (CancelledError, TerminatedError, TimeoutError for the
        other ends), RunBlockedError with the traceback while a bug holds the run, NoLongerKeptError once retention has
        removed it.
        """
        connection, run_key, is_named = self._connection, self._run_key, self.run_id is not None
        told: RunRow | _End | None = None
        if run_key is None:
            row = await self._row()
            run_key, told = row.run_key, None if row.status == "running" else row  # an end does not change any more
        while True:
            told = told or await self._end_of(run_key, wait_while_blocked=wait_while_blocked)
            if not is_named:
                self.run_id = told.run_id
            if not isinstance(told, RunRow):
                return self._conclude(*told)
            was_ended = told.status == "terminated" and not is_named  # by a reset, which another run goes on for?
            if told.status != "continued_as_new" and not was_ended:
                return await self._outcome(told)
            successor = await connection.store.read_current(run_key)
            if was_ended and successor.run_key == told.run_key:
                return await self._outcome(told)
            if not follow_runs and not was_ended:
                raise errors.WorkflowContinuedAsNewError(
                    f"{in_words(told)} has continued as new; run {successor.run_id} is the newest of its chain",
                    workflow_id=told.workflow_id,
                    run_id=told.run_id,
                    new_run_id=successor.run_id,
                )
            run_key, told = successor.run_key, None

    async def _end_of(self, run_key: int, *, wait_while_blocked: bool) -> RunRow | _End:
        """Wait for the end of one run: its row, or what was told of it in this process. Raises RunBlockedError."""
        connection = self._connection
        while True:
            watch = connection.watch(run_key)
            try:
                engine = connection.owner_of(run_key)
                if engine is None:
                    row = await connection.store.read_run(run_key)
                    if row.status != "running":
                        return row
                    if row.blocked is not None and not wait_while_blocked:
                        raise blocks.to_error(row.blocked, row.workflow_id, row.workflow_type, row.run_id)
                    run_id = row.run_id
                else:
                    run_id = engine.runs.active[run_key].identity.run_id
                told = await watch
            finally:
                connection.unwatch(run_key, watch)
            if told is not None:
                status, command = told
                if status == "continued_as_new":
                    return await connection.store.read_run(run_key)
                return _End(status, command, None, run_id)

    async def signal(self, signal: Callable[..., Any] | str, *args: Any, message_id: str | None = None) -> None:
        """Send a message; it is durable when this returns and reaches the run exactly once.

        signal: the decorated method (`Order.dispatched`), or its name. message_id: a name of yours for the message; the
        same id is delivered once however often it is sent.
        Raises UnknownSignalError, RunClosedError, InboxFullError (nothing is stored; send it again later),
        WorkflowNotFoundError, PayloadError, and UsageError for arguments that do not fit the method's parameters.
        """
        if (outbound := self._client.outbound) is not None:
            await outbound.signal_workflow(SignalWorkflowInput(self, signal, args, message_id))
        else:
            await self._signal(signal, args, message_id)

    async def _signal(self, signal: Callable[..., Any] | str, args: tuple[Any, ...], message_id: str | None) -> None:
        name, encoded, _ = self._message("signal", signal, args)
        await self._send("signal", name, encoded, self._message_id(name, message_id))

    async def query(self, query: Callable[..., Any] | str, *args: Any, timeout: timedelta = QUERY_TIMEOUT) -> Any:
        """Ask the run; it is answered from its present state by the worker that holds it.

        Raises UnknownQueryError, QueryFailedError, RunClosedError, and NoWorkerError after `timeout` without an answer:
        nobody holds the run, or what it has done is not durable yet.
        """
        if (outbound := self._client.outbound) is not None:
            return await outbound.query_workflow(QueryWorkflowInput(self, query, args, timeout))
        return await self._query(query, args, timeout)

    async def _query(self, query: Callable[..., Any] | str, args: tuple[Any, ...], timeout: timedelta) -> Any:
        name, encoded, signature = self._message("query", query, args)
        answer = None
        while answer is None:  # it may leave memory or change its owner while it is asked
            row = await self._current()
            if row.status != "running":
                raise errors.RunClosedError(
                    f"{in_words(row)} is {row.status}; a query asks an open run. Its result is in handle.result(), "
                    f"what happened in handle.history()",
                    status=row.status,
                )
            if row.blocked is not None:
                raise blocks.to_error(row.blocked, row.workflow_id, row.workflow_type, row.run_id)
            answer = await asking.ask(self._connection, row, name, encoded, timeout)
        return payloads.decode(answer) if signature is None else signature.decode_result(answer)

    @overload
    async def execute_update(
        self, update: UpdateMethod[Any, ..., Coroutine[Any, Any, R]], *args: Any, **options: Unpack[UpdateOptions]
    ) -> R: ...
    @overload
    async def execute_update(
        self, update: Callable[..., Any] | str, *args: Any, **options: Unpack[UpdateOptions]
    ) -> Any: ...
    async def execute_update(self, update: Any, *args: Any, **options: Any) -> Any:
        """Send an update, as `start_update` does, and wait for what its handler returns."""
        sent: WorkflowUpdateHandle[Any] = await self.start_update(
            update, *args, wait_for_stage=WorkflowUpdateStage.COMPLETED, **options
        )
        return await sent.result()

    async def start_update(
        self,
        update: Callable[..., Any] | str,
        *args: Any,
        wait_for_stage: WorkflowUpdateStage,
        id: str | None = None,  # noqa: A002 - the field's name for it
        timeout: timedelta = ACCEPT_TIMEOUT,
    ) -> WorkflowUpdateHandle[Any]:
        """Send an update, and return once it has come so far.

        update: the decorated method (`Order.add_item`), or its name. id: a name of yours for the update; the same id
        gives the same outcome however often it is sent, for as long as the run is known. timeout: until it is
        accepted. Raises UpdateRejectedError (nothing of it is recorded), UpdateConflictError when the id belongs to an
        update with other arguments, UnknownUpdateError, RunClosedError, RunBlockedError, and NoWorkerError after
        `timeout`.
        """
        given = StartWorkflowUpdateInput(self, update, args, id, wait_for_stage, timeout)
        if (outbound := self._client.outbound) is not None:
            return await outbound.start_workflow_update(given)
        return await self._start_update(given)

    async def _start_update(self, given: StartWorkflowUpdateInput) -> WorkflowUpdateHandle[Any]:
        name, encoded, signature = self._message("update", given.update, tuple(given.args))
        update_id = check_update_id(self._connection, given.id, name, self.workflow_id)
        check_duration(given.timeout, f"the timeout of update {name!r} to workflow {self.workflow_id!r}", or_none="")
        return await start_update(
            self._client,
            self,
            events.UpdateAccepted(name, encoded, update_id),
            signature,
            stage=given.wait_for_stage,
            timeout=given.timeout,
            is_known=given.id is not None,
        )

    def get_update_handle(
        self,
        id: str,  # noqa: A002 - as above
        *,
        update: Callable[..., Any] | str | None = None,
    ) -> WorkflowUpdateHandle[Any]:
        """A handle on an update that was sent elsewhere. update: its method, so that what it returns comes back as the
        annotated type. Nothing is asked of the store yet."""
        id = check_id(id, f"the id of an update of workflow {self.workflow_id!r}")  # noqa: A001 - as above
        known = None if update is None or isinstance(update, str) else payloads.Signature.of(update, skip_self=True)
        return WorkflowUpdateHandle(self._client, id, self, signature=known)

    async def cancel(self, reason: str = "") -> CancelVerdict:
        """Ask the run to stop: CancelledError is raised in its code, which may clean up. Durable when this returns.

        The verdict is recorded when the run closes; `cancel_verdict` reads it.
        """
        if (outbound := self._client.outbound) is not None:
            return await outbound.cancel_workflow(CancelWorkflowInput(self, reason))
        return await self._cancel(reason)

    async def _cancel(self, reason: str) -> CancelVerdict:
        request_id = f"cancel-{self._connection.entropy(8).hex()}"
        await self._send("cancel", "", clean(reason, "the reason of a cancel request").encode(), request_id)
        return CancelVerdict(request_id, None)

    async def cancel_verdict(self, request_id: str) -> CancelVerdict:
        """What became of a cancel request."""
        row = await self._row()
        message = await self._connection.store.read_message(row.chain_key, request_id)
        if message is None:
            raise errors.UsageError(f"{in_words(row)} has no cancel request {request_id!r}")
        verdict = message.verdict if message.verdict != "delivered" else None
        return CancelVerdict(request_id, verdict)

    async def terminate(self, reason: str = "") -> None:
        """End the run at once, without telling its code; what was running is abandoned."""
        if (outbound := self._client.outbound) is not None:
            await outbound.terminate_workflow(TerminateWorkflowInput(self, reason))
        else:
            await self._terminate(reason)

    async def _terminate(self, reason: str) -> None:
        reason = clean(reason, "the reason of a termination")
        while True:
            row = await self._current()
            if row.status != "running":
                raise errors.RunClosedError(
                    f"{in_words(row)} is {row.status} already: there is nothing left to end. {afterwards(row)}",
                    status=row.status,
                )
            if await ending.terminate(self._connection, row, reason):
                return

    async def reset(self, event_id: int, **options: Unpack[ResetOptions]) -> WorkflowHandle[T]:
        """Go on from this event in a new run, whose handle is given; if the run is open, it is ended.

        event_id: the last event that counts; in the midst of what the code asked for, the last input before that does.
        What is recorded up to there is not done again, ids and random values stay, and activities that were pending
        are attempted again under the keys that they had. `plan_reset` tells what else would be repeated.
        reapply: which messages that came after the point the new run is given again; signals and updates by default.
        reason, by: why, and who asks for it (user@host by default). Both runs show it.
        request_id: a name of yours for the request: one new run is made in the chain, however often it is repeated.
        Raises UsageError for an event that the history has not, NoLongerKeptError once retention has removed it,
        CorruptHistoryError for one behind the damage of a damaged history.
        """
        return await self._ask_to_go_on(ResetWorkflowInput(self, event_id, dict(options)))

    async def redrive(
        self, *, reason: str = "", by: str | None = None, request_id: str | None = None
    ) -> WorkflowHandle[T]:
        """Have a run that ended badly go on in a new run, from the last point before that; its handle is given.

        Of a failed run the activity that failed it is attempted again, with as many attempts as at first and under the
        same key; a cancelled one goes on as if nobody had asked it, one that was terminated or has timed out where it
        stood, with as much time as it had at first. Signals that came after the point are given again.
        request_id: as in `reset`.
        Raises RunClosedError for a run that ended well, UsageError for one that is open, NoLongerKeptError.
        """
        options = {"reason": reason, "by": by, "request_id": request_id}
        return await self._ask_to_go_on(ResetWorkflowInput(self, None, options))

    async def plan_reset(
        self, event_id: int, *, reapply: ResetReapplyType = ResetReapplyType.SIGNAL_AND_UPDATE
    ) -> ResetPlan:
        """What `reset` would do; nothing is changed. Raises as `reset`."""
        base = await reset_base.read_base(self._connection.store, await self._row())
        return reset_plan(resetting.draft_reset(base, event_id, reapply))

    async def plan_redrive(self) -> ResetPlan:
        """What `redrive` would do; nothing is changed. Raises as `redrive`."""
        base = await reset_base.read_base(self._connection.store, await self._row())
        return reset_plan(resetting.draft_redrive(base))

    @overload
    def stream(self, topic: str, from_offset: int = 0, *, type: type[V], follow: bool = True) -> Stream[V]: ...
    @overload
    def stream(self, topic: str, from_offset: int = 0, *, type: Any = Any, follow: bool = True) -> Stream[Any]: ...
    def stream(
        self,
        topic: str,
        from_offset: int = 0,
        *,
        type: Any = Any,  # noqa: A002 - what it is
        follow: bool = True,
    ) -> Stream[Any]:
        """What the run and its activities publish to a topic: what is there, then what comes, until the chain closes.

            async for item in handle.stream("progress", type=Progress):
                print(item.value.done, item.offset)

        from_offset: where to begin; after a break, one more than the offset of the last item that was dealt with. 0
        begins with the oldest value that is kept. type: of the values; by default they are what their JSON is. follow:
        False gives what is there, and ends.
        The chain's stream is one: it goes on over continue-as-new, and over a reset. It is quiet while the run waits,
        or is blocked. Whoever leaves the loop early may close it: `contextlib.aclosing(handle.stream(...))`.
        Raises StreamOvertakenError where the stream has reached its bound and that offset is not kept any more,
        NoLongerKeptError, WorkflowNotFoundError, PayloadError for a value of another type, StoreUnavailableError: go on
        from the next offset then.
        """
        place = (self._connection, self._row, check_topic(topic), check_offset(from_offset))
        return Stream(*place, type, to_the_end=follow)

    async def pause(self, reason: str = "", *, by: str | None = None) -> PauseSummary:
        """Have the run stand still until `resume`. As `Client.pause`, for this run alone.

        It can be terminated meanwhile; a request to cancel waits, as any message does. Raises RunClosedError.
        """
        while True:
            row = await self._current()
            if row.status != "running":
                raise errors.RunClosedError(
                    f"{in_words(row)} is {row.status}: there is nothing left to pause. {afterwards(row)}",
                    status=row.status,
                )
            found = await pausing.pause(self._connection, pausing.scope_of_run(row), reason, by)
            # A pause is handed on to the successor of its run. One that comes after the end of that holds nobody.
            if (await self._connection.store.read_run(row.run_key)).status == "running":
                return pause_summary(found)

    async def resume(self) -> PauseSummary | None:
        """Have the run go on, unless its type, queue or namespace is paused too; the pause that is lifted, or None."""
        found = await pausing.resume(self._connection, pausing.scope_of_run(await self._current()))
        return None if found is None else pause_summary(found)

    async def describe(self) -> Description:
        """All there is to say about the run now: state, what it waits for, attempts, messages, owner.

        Of a damaged history only what stands before the damage; `history.damage` says so. Raises NoLongerKeptError.
        """
        store = self._connection.store
        row = await self._row()
        history = await self._read_history(row)
        workers = await self._client.workers()
        pauses = pausing.pauses_of(await store.read_pauses(row.namespace), row)
        places = await store.read_places(row.run_key)
        parent = await store.read_parent(row.chain_key)
        attempts, warnings = warnings_of(await store.read_attempts(row.run_key))
        labels = await store.read_labels([row.run_key])
        return Description(
            summary=run_summary(row, pauses, labels.get(row.run_key, NO_LABELS)),
            history=history,
            state=fold(history.transitions),
            last_event=row.last_event,
            owner=next((each.identity for each in workers if each.session_key == row.owner), None),
            due=None if row.due_ms is None else utc(max(row.due_ms, row.started_ms)),  # 0 stands for "at once"
            pending=await store.read_tasks(row.run_key),
            attempts=completing.told(attempts),
            inbox=await store.read_inbox(row.chain_key),
            undelivered=await store.read_undelivered(row.chain_key),
            blocked=None if row.blocked is None else blocks.read(row.blocked),
            workers=workers,
            now=await self._client.now(),
            pauses=tuple(map(pause_summary, pauses)),
            places=tuple(places),
            dependencies=await self._holding_up(row.namespace, places),
            parent=None if parent is None else run_summary(parent),
            resets=tuple(map(reset_summary, await store.read_resets(row.run_key))),
            history_warnings=tuple(warnings),
            streams=tuple(map(stream_summary, await store.read_streams(row.chain_key))),
        )

    async def _holding_up(self, namespace: str, places: list[PlaceRow]) -> dict[str, DependencySummary]:
        """Dependencies that some of these wait for."""
        names = {place.dependency for place in places if place.dependency is not None}
        rows = await self._connection.store.read_dependencies(namespace) if names else {}
        return {name: dependency_summary(name, row) for name, row in rows.items() if name in names}

    async def history(self, *, until_damage: bool = False) -> History:
        """The whole history, its checksums verified.

        until_damage: of a damaged one give what stands before the damage, instead of raising CorruptHistoryError.
        Raises NoLongerKeptError once retention has removed it.
        """
        history = await self._read_history(await self._row())
        if history.damage is not None and not until_damage:
            raise history.damage
        return history

    async def _ask_to_go_on(self, asked: ResetWorkflowInput) -> WorkflowHandle[T]:
        if (outbound := self._client.outbound) is not None:
            return await outbound.reset_workflow(asked)
        return await self._go_on(asked.event_id, **asked.options)

    async def _go_on(
        self,
        event_id: int | None,
        *,
        reason: str = "",
        by: str | None = None,
        request_id: str | None = None,
        reapply: ResetReapplyType = ResetReapplyType.SIGNAL_AND_UPDATE,
    ) -> WorkflowHandle[T]:
        draft: Callable[[reset_base.Base], resetting.Draft] = resetting.draft_redrive
        if event_id is not None:
            draft = functools.partial(resetting.draft_reset, event_id=event_id, reapply=reapply)
        asked = resetting.Asked(
            draft,
            clean(reason, "the reason of a reset"),
            clean(by or person(), "who asks for a reset"),
            None if request_id is None else check_id(request_id, "the request_id of a reset"),
        )
        run_id, *keys = await resetting.carry_out(self._connection, self._row, asked)
        return WorkflowHandle(self._client, self.workflow_id, run_id, self._definition, *keys)

    # Inside -----------------------------------------------------------------------------------------------------------

    async def _current(self) -> RunRow:
        """The run that its chain has now."""
        if self._run_key is not None:
            return await self._connection.store.read_current(self._run_key)
        row = await self._row()
        if row.status == "running":
            return row
        return await self._connection.store.read_current(row.run_key)

    async def _row(self) -> RunRow:
        """The run that is looked at."""
        store = self._connection.store
        if self._run_key is not None:
            return await store.read_current(self._run_key)
        row = await store.find_run(self._connection.namespace, self.workflow_id, self.run_id)
        if row is None:
            which = "" if self.run_id is None else f" with run id {self.run_id}"
            if self.is_new:
                raise errors.WorkflowNotFoundError(
                    f"workflow {self.workflow_id!r}{which} is not there: the transaction in which it was started is "
                    "not committed yet, or was rolled back. Its handle is of use after the commit"
                )
            raise errors.WorkflowNotFoundError(
                f"no workflow {self.workflow_id!r}{which} in namespace {self._connection.namespace!r}; "
                f"`pledger list` shows what there is"
            )
        # Who started it, and has no key of it, has named no segment either.
        return row if self.is_new is None else await store.read_current(row.run_key)

    async def _read_history(self, row: RunRow) -> History:
        check_kept(row)
        store = self._connection.store
        from pledger.engine.loading import HistoryReader, identity_of  # noqa: PLC0415 - a part of the engine

        reader = HistoryReader(store, row.run_key, row.run_id)
        found: list[Transition] = []
        damage: errors.StoreError | None = None
        try:
            # Not by the reader's own pages: of the page with the damage in it, the rows before it count.
            while reader.last_event < row.last_event:
                rows = await store.read_history(row.run_key, reader.last_event)
                found.extend(reader.take(each) for each in rows)
                if not rows:
                    break
            if reader.last_event <= row.last_event:  # beyond it, the run has gone on since its row was read
                reader.check_end(row)
        except (errors.CorruptHistoryError, errors.CodecError) as error:
            check_kept(await store.read_run(row.run_key))  # it may have been removed while it was read
            damage = error
        return History(identity_of(row), tuple(found), damage)

    def _message_id(self, name: str, given: str | None) -> str | None:
        """The id that a signal is given. Raises UsageError."""
        if given is None:
            return None
        what_for = f"the message_id of signal {name!r} to workflow {self.workflow_id!r}"
        if not check_id(given, what_for):
            raise errors.UsageError(f"{what_for} is empty, and names nothing: give one of your own, or None")
        return given

    async def _send_beside_start(self, signal: events.SignalReceived, *, keep_id: bool) -> None:
        """The signal of a start that has found this run."""
        await self._send("signal", signal.name, signal.args, signal.message_id, keep_id=keep_id)

    def _message(
        self, kind: Kind, what: Callable[..., Any] | str, args: tuple[Any, ...]
    ) -> tuple[str, bytes, payloads.Signature | None]:
        """Name, encoded arguments and handler's signature of a message, checked as far as this process knows the
        workflow."""
        name = what if isinstance(what, str) else handler_name(what, kind)
        unknown = _UNKNOWN[kind]
        if name is None:
            dynamic = "; a dynamic one is called by the name that it is to get" if mark_of(what) is not None else ""
            raise unknown(f"{what!r} is not {_A[kind]}: decorate the method with @workflow.{kind}{dynamic}")
        name = check_id(name, f"the name of {_A[kind]} to workflow {self.workflow_id!r}")
        if name.startswith(RESERVED):
            raise errors.UsageError(
                f"no {kind} is called {name!r}: names that begin with {RESERVED!r} are Pledger's own"
            )
        handler = self._handler(kind, name)
        signature = handler.signature if handler is not None else None
        if signature is None and not isinstance(what, str):
            signature = payloads.Signature.of(what, skip_self=True)
        what_for = f"the {kind} {name!r} to workflow {self.workflow_id!r}"
        bytes_max = self._connection.payload_bytes_max
        return name, encode_call(signature, args, call=name, what=what_for, bytes_max=bytes_max), signature

    def _handler(self, kind: Kind, name: str) -> Handler | None:
        """The definition's, as far as it is known. Raises UnknownSignalError and its like where it has none, and no run
        of it can have one."""
        definition = self._definition
        if definition is None:
            return None
        known = definition.handlers.named[kind]
        handler = known.get(name)
        if handler is None and not definition.handlers.may_take(kind, name):
            names = ", ".join(sorted(known)) or "none"
            raise _UNKNOWN[kind](f"workflow {definition.name!r} has no {kind} {name!r}; it has: {names}")
        # The code may have set another one in its place.
        return None if definition.handlers.sets_more else handler

    async def _send(self, kind: str, name: str, body: bytes, message_id: str | None, *, keep_id: bool = True) -> None:
        """keep_id: of a message_id that is given, whether it is the sender's own."""
        connection = self._connection
        run_key = self._run_key or (await self._row()).run_key
        operation = Send(
            run_key,
            kind,
            message_id or connection.entropy(12).hex(),
            name,
            body,
            await connection.now_ms(),
            message_id is not None and keep_id,
            connection.session_keys(),
            inbox_room(kind),
        )
        answer = await connection.send(operation)
        if answer is Reply.FULL:
            raise await self._full(run_key, "request to cancel" if kind == "cancel" else f"{kind} {name!r}")
        if answer is Reply.CLOSED:
            row = await connection.store.read_current(run_key)
            what = "request to cancel" if kind == "cancel" else kind
            raise errors.RunClosedError(
                f"{in_words(row)} is {row.status} and takes no {what}. {afterwards(row)}"
                f"{'' if kind == 'cancel' else '; to go on with it, start a run under another workflow id'}",
                status=row.status,
            )

    async def _full(self, run_key: int, what: str) -> errors.InboxFullError:
        row = await self._connection.store.read_current(run_key)
        waiting = len(await self._connection.store.read_inbox(row.chain_key))
        stands = "is blocked" if row.blocked is not None else "has not taken them yet"
        return errors.InboxFullError(
            f"{in_words(row)} {stands}, and {waiting:,} messages wait for it; its inbox takes no {what} now. Nothing "
            f"that was accepted is lost. `pledger show {row.workflow_id}` says what the run waits for; send again once "
            f"a worker of task queue {row.task_queue!r} has worked some off, or end the run",
            workflow_id=row.workflow_id,
            run_id=row.run_id,
        )

    async def _newest(self, row: RunRow) -> Transition | None:
        """Raises CorruptHistoryError: what a client is told of the end of a run is what was recorded."""
        from pledger.engine.newest import newest_transition  # noqa: PLC0415 - a part of the engine

        return await newest_transition(self._connection.store, row)

    async def _outcome(self, row: RunRow) -> T:
        check_kept(row)
        command: Command | None = None
        reason: str | None = None
        found = await self._newest(row)
        if found is not None:
            command = found.commands[-1] if found.commands else None
            reason = next((i.reason for i in found.inputs if isinstance(i, events.RunTerminated)), None)
        else:
            check_kept(await self._connection.store.read_run(row.run_key))  # removed in this very moment
        return self._conclude(row.status, command, reason, row.run_id)

    def _conclude(self, status: RunStatus, command: Command | None, reason: str | None, run_id: str) -> T:
        """The result, or the error that the end of the run is to its client."""
        if isinstance(command, events.CompleteRun):
            definition = self._definition
            decode = payloads.decode if definition is None else definition.signature.decode_result
            return cast("T", decode(command.result))
        named = "" if self._definition is None else f"{self._definition.name}, "
        who = f"workflow {self.workflow_id!r} ({named}run {run_id})"
        told = f"{who} {status}"
        cause: BaseException | None = None
        if isinstance(command, events.FailRun | events.CancelRun):
            cause = failures.to_exception(command.failure)
        elif status == "terminated":
            cause = errors.TerminatedError(f"{who} was terminated{': ' + reason if reason else ''}")
        elif status == "timed_out":
            cause = errors.TimeoutError(f"{who} passed its deadline", kind="run")
        if isinstance(command, events.FailRun | events.CancelRun):
            told += f": {cause}" if str(cause) else ""
        elif cause is not None:  # the engine's own words, which name the run already
            told = str(cause)
        raise errors.WorkflowFailedError(told, workflow_id=self.workflow_id, run_id=run_id, status=status) from cause
