"""The client: starts runs, talks to them, waits for them, lists them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, Generic, TypeVar, cast

from pledger import errors
from pledger.engine import blocks, listing, port
from pledger.engine.callbacks import in_callback
from pledger.engine.code_identity import user_modules
from pledger.engine.connection import Connection
from pledger.engine.ids import new_run_id
from pledger.engine.loading import HistoryReader, identity_of
from pledger.engine.port import IdConflictPolicy, IdReusePolicy, RunRow, RunStatus
from pledger.history import events, failures, payloads, transition, view
from pledger.history.events import Command, RunStarted
from pledger.history.retry import milliseconds
from pledger.history.state import RunState, fold
from pledger.history.transition import StoredTransition, Transition
from pledger.history.view import HistoryEvent, numbered
from pledger.machine import guards
from pledger.machine.context import RunIdentity
from pledger.machine.definitions import WorkflowDefinition, handler_name
from pledger.machine.machine import Machine
from pledger.store import open_store

__all__ = [
    "CancelVerdict",
    "Client",
    "Description",
    "History",
    "IdConflictPolicy",
    "IdReusePolicy",
    "RunSummary",
    "WorkerSummary",
    "WorkflowHandle",
    "connect",
]

T = TypeVar("T")

#: How long a query waits for a worker to answer.
QUERY_TIMEOUT: Final = timedelta(seconds=10)


@contextlib.asynccontextmanager
async def connect(url: str, *, namespace: str = "default", durability: str = "power") -> AsyncIterator[Client]:
    """Open a ledger and give the client for it; closing waits until what was asked is written.

    url: `sqlite:///orders.db` (relative), `sqlite:////var/lib/orders.db` (absolute) or `memory://name`.
    durability: "power" survives power loss; "process" survives kill -9 only, and is faster.
    Raises UsageError for a URL it does not know, StoreError when the database cannot be opened.
    """
    store = await open_store(url, durability=durability)
    connection = Connection(store, namespace=namespace)
    try:
        yield Client(connection)
    finally:
        await connection.close()


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One run of a list. Times with zone (UTC). closed: None while open. blocked: why it stands still, or None."""

    workflow_id: str
    run_id: str
    workflow_type: str
    task_queue: str
    status: RunStatus
    started: datetime
    closed: datetime | None
    blocked: str | None


@dataclass(frozen=True, slots=True)
class WorkerSummary:
    """One worker process. session_key: names it among owners. expires: end of its lease. live: whether that lies ahead;
    a worker that is not has died without saying so, and others take over its runs."""

    session_key: int
    identity: str
    task_queue: str
    code: str
    started: datetime
    expires: datetime
    live: bool


@dataclass(frozen=True, slots=True)
class History:
    """A history. `events` numbers them; `transitions` is what replay takes.

    damage: why it ends early, where only what stands before a damaged row could be read; else None.
    """

    identity: RunIdentity
    transitions: tuple[Transition, ...]
    damage: errors.CorruptHistoryError | None = None

    @property
    def events(self) -> list[HistoryEvent]:
        return numbered(self.transitions)

    def export(self) -> bytes:
        """JSON text that `read` takes back. Payloads are in it as the JSON that they are, digit by digit."""
        run = {name: getattr(self.identity, name) for name in RunIdentity.__slots__}
        return view.export(self.transitions, run)

    @classmethod
    def read(cls, data: bytes) -> History:
        """The history of an exported text. Raises PayloadError when it is none."""
        run, transitions = view.read_export(data)
        try:
            identity = RunIdentity(**run)
        except TypeError:
            raise errors.PayloadError("this exported history does not say whose it is; `run` names its run") from None
        return cls(identity, transitions)

    async def replay(self, workflow: Callable[..., Any] | type) -> int:
        """Replay it against the workflow as it is now; how many events it has.

        Raises NondeterminismError at the first difference, ForbiddenCallError, or whatever the code itself raises.
        """
        definition = WorkflowDefinition.of(workflow)
        guards.install(user_modules([definition.target]))
        machine = Machine(definition, self.identity)
        loop = asyncio.get_running_loop()
        try:
            for each in self.transitions:
                await in_callback(loop, partial(machine.replay, each))
        finally:
            loop.call_soon(machine.destroy)
        return machine.last_event


@dataclass(frozen=True, slots=True)
class Description:
    """One run in full. state: what its history amounts to. pending: activities that wait in the store (retries, other
    queues). owner: the worker that holds it, or None. due: when it goes on by itself, or None when only a message can
    wake it. inbox: messages not yet in its history. workers: all of this ledger. now: the store's time."""

    summary: RunSummary
    history: History
    state: RunState
    last_event: int
    owner: str | None
    due: datetime | None
    pending: list[port.TaskRow]
    attempts: list[port.AttemptRecord]
    inbox: list[port.Message]
    undelivered: list[port.Message]
    blocked: dict[str, Any] | None
    workers: tuple[WorkerSummary, ...]
    now: datetime


@dataclass(frozen=True, slots=True)
class CancelVerdict:
    """What became of a cancel request. verdict: None while the run is still open, then "cancelled" or
    "too_late:<status>"."""

    request_id: str
    verdict: str | None


class Client:
    """Made by `connect`. Safe to share among the tasks of one event loop."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    async def start_workflow(
        self,
        workflow: Callable[..., Any] | type | str,
        *args: Any,
        id: str,  # noqa: A002 - the field's name for it
        task_queue: str = "default",
        id_reuse_policy: IdReusePolicy = IdReusePolicy.SAME_INPUT,
        id_conflict_policy: IdConflictPolicy = IdConflictPolicy.SAME_INPUT,
        execution_timeout: timedelta | None = None,
    ) -> WorkflowHandle[Any]:
        """Start a run; it is durable when this returns. The same id with the same input gives the same run.

        workflow: the definition (function, class or its run method), or its name where another program defines it.
        id_reuse_policy, id_conflict_policy: what to do when a closed or an open run has the id.
        execution_timeout: the run closes as timed_out after so long; the definition's deadline by default.
        Raises WorkflowAlreadyStartedError for another input under a taken id, PayloadError for arguments that cannot be
        kept, UnknownWorkflowError when a worker of this process serves the queue and does not know the type.
        """
        definition = None if isinstance(workflow, str) else WorkflowDefinition.of(workflow)
        name = workflow if isinstance(workflow, str) else cast("WorkflowDefinition", definition).name
        if not id:
            raise errors.UsageError(f"workflow {name!r} needs an id: a name of yours for this piece of work")
        self._check_known(name, task_queue)
        if definition is None:
            encoded = payloads.encode_args_untyped(args)
        else:
            encoded = definition.signature.encode_args(args, {})
        payloads.check_size(encoded, f"the input of workflow {id!r} ({name})", payloads.PAYLOAD_BYTES_MAX)
        connection = self.connection
        now_ms = await connection.now_ms()
        limit = execution_timeout or (definition.deadline if definition is not None else None)
        deadline_ms = None if limit is None else now_ms + milliseconds(limit)
        entropy = connection.entropy(26)
        started = RunStarted(name, encoded, entropy[:16], task_queue, deadline_ms)
        start = port.StartRun(
            connection.namespace,
            id,
            new_run_id(now_ms, entropy[16:]),
            name,
            task_queue,
            payloads.digest(encoded),
            transition.encode_event(started),
            now_ms,
            id_reuse_policy,
            id_conflict_policy,
        )
        answer = await self._start(start, started)
        if isinstance(answer, port.Started):
            return WorkflowHandle(self, id, start.run_id, definition, answer.run_key, answer.chain_key, is_new=True)
        assert isinstance(answer, port.Existing)
        existing = answer.run
        if answer.decision == "use":
            keys = (existing.run_key, existing.chain_key)
            return WorkflowHandle(self, id, existing.run_id, definition, *keys, is_new=False)
        if answer.decision == "terminate":
            with contextlib.suppress(errors.RunClosedError):  # it may end by itself meanwhile
                await self.handle(id, run_id=existing.run_id).terminate("replaced by a new run of the same workflow id")
            return await self.start_workflow(
                workflow,
                *args,
                id=id,
                task_queue=task_queue,
                id_reuse_policy=IdReusePolicy.ALLOW_DUPLICATE,
                id_conflict_policy=id_conflict_policy,
                execution_timeout=execution_timeout,
            )
        raise self._taken(start, existing)

    async def execute_workflow(self, workflow: Callable[..., Any] | type | str, *args: Any, **options: Any) -> Any:
        """Start a run and wait for its result; options as in `start_workflow`."""
        return await (await self.start_workflow(workflow, *args, **options)).result()

    def handle(
        self, workflow_id: str, *, run_id: str | None = None, workflow: Callable[..., Any] | type | None = None
    ) -> WorkflowHandle[Any]:
        """A handle on a run that was started elsewhere; without run_id the newest run of the id.

        workflow: its definition, so that results come back as the annotated type. Nothing is asked of the store yet.
        """
        return WorkflowHandle(self, workflow_id, run_id, None if workflow is None else WorkflowDefinition.of(workflow))

    async def list(self, filter: str = "", *, limit: int | None = None) -> AsyncIterator[RunSummary]:  # noqa: A002
        """The runs that meet the filter, newest first: `status = 'running' and type = 'fulfil'`.

        Fields: workflow_id, run_id, type, task_queue, status, started, closed, blocked. Operators: = != < <= > >= in,
        joined by `and`. Times as ISO texts. Raises InvalidFilterError.
        """
        where = listing.parse(filter)
        before: int | None = None
        left = limit
        while left is None or left > 0:
            page = await self.connection.store.list_runs(
                self.connection.namespace, where, min(left or listing.PAGE, listing.PAGE), before
            )
            for row in page:
                yield _summary(row)
            if len(page) < min(left or listing.PAGE, listing.PAGE):
                return
            before = page[-1].run_key
            left = None if left is None else left - len(page)

    async def count(self, filter: str = "") -> int:  # noqa: A002
        """How many runs meet the filter."""
        return await self.connection.store.count_runs(self.connection.namespace, listing.parse(filter))

    async def workers(self) -> tuple[WorkerSummary, ...]:
        """The worker processes of this ledger, and those that died and whose runs nobody has taken over yet."""
        now_ms = await self.connection.now_ms()
        return tuple(_worker(each, now_ms) for each in await self.connection.store.read_sessions())

    async def ledger(self) -> dict[str, Any]:
        """About the database: its kind, place, version, durability and size, as the store tells it."""
        return await self.connection.store.describe()

    async def now(self) -> datetime:
        """The ledger's time, with zone (UTC)."""
        return _utc(await self.connection.now_ms())

    # Inside -----------------------------------------------------------------------------------------------------------

    def _check_known(self, name: str, task_queue: str) -> None:
        served = [each for each in self.connection.engines if each.task_queue == task_queue]
        if served and all(name not in each.workflows for each in served):
            known = ", ".join(sorted({each for engine in served for each in engine.workflows})) or "none"
            raise errors.UnknownWorkflowError(
                f"the worker of task queue {task_queue!r} in this process does not know the workflow {name!r}; "
                f"it knows: {known}. Add it to Worker(workflows=[...]), or name the queue of the worker that has it"
            )

    async def _start(self, start: port.StartRun, started: RunStarted) -> port.Answer:
        connection = self.connection
        engine = connection.engine_for(start.workflow_type, start.task_queue)
        if engine is None:
            return await connection.committer.write(start)
        future: asyncio.Future[port.Answer] = connection.loop.create_future()

        def done(answer: port.Answer) -> None:
            if isinstance(answer, port.Started) and start.owner is None:
                engine.message_sent(answer.run_key, None)
            if future.done():
                return
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)

        identity = RunIdentity(
            namespace=start.namespace,
            workflow_id=start.workflow_id,
            run_id=start.run_id,
            workflow_type=start.workflow_type,
            task_queue=start.task_queue,
        )
        engine.begin(start, started, identity, done)
        return await future

    def _taken(self, start: port.StartRun, existing: RunRow) -> errors.WorkflowAlreadyStartedError:
        same = existing.input_digest == start.input_digest and existing.workflow_type == start.workflow_type
        what = (
            "with the same input, and the chosen policy does not take it"
            if same
            else f"of type {existing.workflow_type!r}"
            if existing.workflow_type != start.workflow_type
            else "with another input"
        )
        return errors.WorkflowAlreadyStartedError(
            f"workflow id {start.workflow_id!r} is taken by run {existing.run_id} ({existing.status}) {what}. "
            f"Use another id for another piece of work, or choose an id_reuse_policy / id_conflict_policy",
            workflow_id=start.workflow_id,
            run_id=existing.run_id,
        )


class WorkflowHandle(Generic[T]):
    """One run, or (without a run_id) the newest run of a workflow id.

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
        self._connection = client.connection
        self.workflow_id = workflow_id
        self.run_id = run_id
        self.is_new = is_new
        self._definition = definition
        self._run_key = run_key
        self._chain_key = chain_key

    def __repr__(self) -> str:
        return f"<WorkflowHandle {self.workflow_id!r} run {self.run_id or '(newest)'}>"

    async def result(self, *, wait_while_blocked: bool = False) -> T:
        """The result, once the run has closed.

        wait_while_blocked: wait for the fix instead of raising when the run is blocked.
        Raises WorkflowFailedError with the failure as cause (CancelledError, TerminatedError, TimeoutError for the
        other ends), RunBlockedError with the traceback while a bug holds the run.
        """
        run_key = self._run_key or (await self._row()).run_key
        while True:
            watch = self._connection.watch(run_key)
            try:
                if self._connection.owner_of(run_key) is None:
                    row = await self._connection.store.read_run(run_key)
                    if row.status != "running":
                        return await self._outcome(row)
                    if row.blocked is not None and not wait_while_blocked:
                        raise blocks.to_error(row.blocked, row.workflow_id, row.workflow_type, row.run_id)
                told = await watch
            finally:
                self._connection.unwatch(run_key, watch)
            if told is not None:
                status, command = told
                return self._conclude(status, command)

    async def signal(self, signal: Callable[..., Any] | str, *args: Any, message_id: str | None = None) -> None:
        """Send a message; it is durable when this returns and reaches the run exactly once.

        signal: the decorated method (`Order.dispatched`), or its name. message_id: a name of yours for the message; the
        same id is delivered once however often it is sent.
        Raises UnknownSignalError, RunClosedError, WorkflowNotFoundError, PayloadError.
        """
        name, encoded = self._message("signal", signal, args)
        await self._send("signal", name, encoded, message_id)

    async def query(self, query: Callable[..., Any] | str, *args: Any, timeout: timedelta = QUERY_TIMEOUT) -> Any:
        """Ask the run; it is answered from its present state by the worker that holds it.

        Raises UnknownQueryError, QueryFailedError, RunClosedError, and NoWorkerError after `timeout` without an answer.
        """
        name, encoded = self._message("query", query, args)
        answer = None
        while answer is None:  # it may leave memory or change its owner while it is asked
            row = await self._row()
            if row.status != "running":
                raise errors.RunClosedError(
                    f"{_who(row)} is {row.status}; a query asks an open run. Its result is in handle.result(), "
                    f"what happened in handle.history()",
                    status=row.status,
                )
            if row.blocked is not None:
                raise blocks.to_error(row.blocked, row.workflow_id, row.workflow_type, row.run_id)
            answer = await self._ask(row, name, encoded, timeout)
        handler = self._definition.queries.get(name) if self._definition is not None else None
        return payloads.decode(answer) if handler is None else handler.signature.decode_result(answer)

    async def cancel(self, reason: str = "") -> CancelVerdict:
        """Ask the run to stop: CancelledError is raised in its code, which may clean up. Durable when this returns.

        The verdict is recorded when the run closes; `cancel_verdict` reads it.
        """
        request_id = f"cancel-{self._connection.entropy(8).hex()}"
        await self._send("cancel", "", reason.encode("utf-8", "backslashreplace"), request_id)
        return CancelVerdict(request_id, None)

    async def cancel_verdict(self, request_id: str) -> CancelVerdict:
        """What became of a cancel request."""
        row = await self._row()
        message = await self._connection.store.read_message(row.chain_key, request_id)
        if message is None:
            raise errors.UsageError(f"{_who(row)} has no cancel request {request_id!r}")
        verdict = message.verdict if message.verdict != "delivered" else None
        return CancelVerdict(request_id, verdict)

    async def terminate(self, reason: str = "") -> None:
        """End the run at once, without telling its code; what was running is abandoned."""
        while True:
            row = await self._row()
            if row.status != "running":
                raise errors.RunClosedError(f"{_who(row)} is {row.status} already", status=row.status)
            last = await self._connection.store.read_last_transition(row.run_key)
            # The time of a run never goes back, whatever the clock has done since its last transition.
            last_ms = 0 if last is None else transition.decode(last.body).time_ms
            now_ms = max(last_ms, await self._connection.now_ms())
            body = transition.encode(Transition(transition.FORMAT, now_ms, None, (events.RunTerminated(reason),)))
            first = row.last_event + 1
            stored = StoredTransition(first, body, transition.checksum(row.head, first, body))
            operation = port.Terminate(row.run_key, row.last_event, stored, first, now_ms)
            if await self._connection.committer.write(operation) is port.Reply.WON:
                self._connection.terminated(row.run_key)
                return

    async def describe(self) -> Description:
        """All there is to say about the run now: state, what it waits for, attempts, messages, owner.

        Of a damaged history only what stands before the damage; `history.damage` says so.
        """
        store = self._connection.store
        row = await self._row()
        history = await self._read_history(row)
        workers = await self._client.workers()
        return Description(
            summary=_summary(row),
            history=history,
            state=fold(history.transitions),
            last_event=row.last_event,
            owner=next((each.identity for each in workers if each.session_key == row.owner), None),
            due=None if row.due_ms is None else _utc(max(row.due_ms, row.started_ms)),  # 0 stands for "at once"
            pending=await store.read_tasks(row.run_key),
            attempts=await store.read_attempts(row.run_key),
            inbox=await store.read_inbox(row.chain_key),
            undelivered=await store.read_undelivered(row.chain_key),
            blocked=None if row.blocked is None else blocks.read(row.blocked),
            workers=workers,
            now=await self._client.now(),
        )

    async def history(self, *, until_damage: bool = False) -> History:
        """The whole history, its checksums verified.

        until_damage: of a damaged one give what stands before the damage, instead of raising CorruptHistoryError.
        """
        history = await self._read_history(await self._row())
        if history.damage is not None and not until_damage:
            raise history.damage
        return history

    # Inside -----------------------------------------------------------------------------------------------------------

    async def _row(self) -> RunRow:
        store = self._connection.store
        if self._run_key is not None:
            return await store.read_run(self._run_key)
        row = await store.find_run(self._connection.namespace, self.workflow_id, self.run_id)
        if row is None:
            which = "" if self.run_id is None else f" with run id {self.run_id}"
            raise errors.WorkflowNotFoundError(
                f"no workflow {self.workflow_id!r}{which} in namespace {self._connection.namespace!r}; "
                f"`pledger list` shows what there is"
            )
        return row

    async def _read_history(self, row: RunRow) -> History:
        store = self._connection.store
        reader = HistoryReader(store, row.run_key, row.run_id)
        found: list[Transition] = []
        damage: errors.CorruptHistoryError | None = None
        try:
            # Not by the reader's own pages: of the page with the damage in it, the rows before it count.
            while reader.last_event < row.last_event:
                rows = await store.read_history(row.run_key, reader.last_event)
                found.extend(reader.take(each) for each in rows)
                if not rows:
                    break
            if reader.last_event <= row.last_event:  # beyond it, the run has gone on since its row was read
                reader.check_end(row)
        except errors.CorruptHistoryError as error:
            damage = error
        return History(identity_of(row), tuple(found), damage)

    def _message(self, kind: str, what: Callable[..., Any] | str, args: tuple[Any, ...]) -> tuple[str, bytes]:
        """Name and encoded arguments of a signal or query, checked as far as this process knows the workflow."""
        name = what if isinstance(what, str) else handler_name(what, "signal" if kind == "signal" else "query")
        unknown = errors.UnknownSignalError if kind == "signal" else errors.UnknownQueryError
        if name is None:
            raise unknown(f"{what!r} is not a {kind}: decorate the method with @workflow.{kind}")
        definition = self._definition
        handler = None
        if definition is not None:
            known = definition.signals if kind == "signal" else definition.queries
            handler = known.get(name)
            if handler is None:
                names = ", ".join(sorted(known)) or "none"
                raise unknown(f"workflow {definition.name!r} has no {kind} {name!r}; it has: {names}")
        signature = handler.signature if handler is not None else None
        if signature is None and not isinstance(what, str):
            signature = payloads.Signature.of(what, skip_self=True)
        encoded = payloads.encode_args_untyped(args) if signature is None else signature.encode_args(args, {})
        payloads.check_size(
            encoded, f"the {kind} {name!r} to workflow {self.workflow_id!r}", payloads.PAYLOAD_BYTES_MAX
        )
        return name, encoded

    async def _send(self, kind: str, name: str, body: bytes, message_id: str | None) -> None:
        connection = self._connection
        run_key = self._run_key or (await self._row()).run_key
        operation = port.Send(
            run_key,
            kind,
            message_id or connection.entropy(12).hex(),
            name,
            body,
            await connection.now_ms(),
            message_id is not None,
            connection.session_keys(),
        )
        answer = await connection.committer.write(operation)
        if answer is port.Reply.CLOSED:
            row = await connection.store.read_run(run_key)
            what = "request to cancel" if kind == "cancel" else kind
            raise errors.RunClosedError(f"{_who(row)} is {row.status} and takes no {what}", status=row.status)
        if isinstance(answer, port.Sent):
            connection.message_sent(run_key, answer.owner)

    async def _ask(self, row: RunRow, name: str, body: bytes, timeout: timedelta) -> bytes | None:
        connection = self._connection
        store = connection.store
        engine = connection.owner_of(row.run_key)
        if engine is not None:
            return await engine.query(row.run_key, name, body)
        now_ms = await connection.now_ms()
        expires_ms = now_ms + milliseconds(timeout)
        request_key = await store.ask(row.run_key, "query", name, body, expires_ms)
        connection.message_sent(row.run_key, None)
        delay = 0.002
        while await connection.now_ms() < expires_ms:
            await asyncio.sleep(delay)
            delay = min(0.05, delay * 1.5)
            answered = await store.take_answer(request_key)
            if answered is None:
                continue
            if answered.failure is not None:
                raise _refusal(failures.decode(answered.failure))
            return answered.answer or b"null"
        await store.drop_requests(expires_ms + 1)
        current = await store.read_run(row.run_key)
        if current.blocked is not None:
            raise blocks.to_error(current.blocked, row.workflow_id, row.workflow_type, row.run_id)
        raise errors.NoWorkerError(
            f"no worker answered the query {name!r} of {_who(row)} within {timeout.total_seconds():g} s. Start one for "
            f"task queue {row.task_queue!r} that knows {row.workflow_type!r}: pledger worker your_module:worker"
        )

    async def _outcome(self, row: RunRow) -> T:
        last = await self._connection.store.read_last_transition(row.run_key)
        command: Command | None = None
        reason: str | None = None
        if last is not None:
            found = transition.decode(last.body)
            command = found.commands[-1] if found.commands else None
            reason = next((i.reason for i in found.inputs if isinstance(i, events.RunTerminated)), None)
        return self._conclude(row.status, command, reason)

    def _conclude(self, status: RunStatus, command: Command | None, reason: str | None = None) -> T:
        """The result, or the error that the end of the run is to its client."""
        if isinstance(command, events.CompleteRun):
            definition = self._definition
            decode = payloads.decode if definition is None else definition.signature.decode_result
            return cast("T", decode(command.result))
        who = f"workflow {self.workflow_id!r} (run {self.run_id})"
        cause: BaseException | None = None
        if isinstance(command, events.FailRun | events.CancelRun):
            cause = failures.to_exception(command.failure)
        elif status == "terminated":
            cause = errors.TerminatedError(f"{who} was terminated{': ' + reason if reason else ''}")
        elif status == "timed_out":
            cause = errors.TimeoutError(f"{who} passed its deadline", kind="run")
        told = f"{who} {status}" + (f": {cause}" if cause is not None and str(cause) else "")
        raise errors.WorkflowFailedError(
            told, workflow_id=self.workflow_id, run_id=self.run_id or "", status=status
        ) from cause


def _who(row: RunRow) -> str:
    return f"workflow {row.workflow_id!r} ({row.workflow_type}, run {row.run_id})"


def _refusal(failure: failures.Failure) -> Exception:
    """Why another process did not answer: of the class that it would have here."""
    cls = getattr(errors, failure.type, None)
    if isinstance(cls, type) and issubclass(cls, errors.PledgerError) and not issubclass(cls, errors.FailureError):
        return cls(failure.message)
    return failures.to_exception(failure)


def _utc(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def _worker(session: port.SessionRow, now_ms: int) -> WorkerSummary:
    return WorkerSummary(
        session.session_key,
        session.identity,
        session.task_queue,
        session.code,
        _utc(session.started_ms),
        _utc(session.expires_ms),
        session.expires_ms > now_ms,
    )


def _summary(row: RunRow) -> RunSummary:
    return RunSummary(
        row.workflow_id,
        row.run_id,
        row.workflow_type,
        row.task_queue,
        row.status,
        _utc(row.started_ms),
        None if row.closed_ms is None else _utc(row.closed_ms),
        None if row.blocked is None else _in_short(blocks.read(row.blocked)),
    )


def _in_short(block: dict[str, Any]) -> str:
    """A block's reason in a line, like `ZeroDivisionError: division by zero`."""
    line = str(block["message"]).strip().partition("\n")[0]
    return f"{block['type']}: {line}" if line else str(block["type"])
