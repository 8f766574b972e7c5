"""The client: starts runs, talks to them, waits for them, lists them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, Required, TypedDict, TypeVar, Unpack, overload

from pledger import errors, starts
from pledger.completions import Completions, check_token_keys
from pledger.engine import operators, pausing
from pledger.engine.port.operations import IdConflictPolicy
from pledger.engine.resetting import Repetition, ResetReapplyType
from pledger.engine.search import pages, views
from pledger.engine.search.views import View
from pledger.following import Stream, StreamItem
from pledger.handle import QUERY_TIMEOUT, UpdateOptions, WorkflowHandle
from pledger.history import payloads
from pledger.history.attributes import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes
from pledger.history.events import UpdateAccepted
from pledger.history.names import check_id
from pledger.history.placement import Priority, override_rule
from pledger.history.retry import is_whole
from pledger.history.reuse import IdReusePolicy
from pledger.history.sealing import PayloadCodec, check_codecs
from pledger.history.times import utc
from pledger.interceptors import (
    ClientOutboundInterceptor,
    Interceptor,
    StartWorkflowInput,
    StartWorkflowUpdateWithStartInput,
    checked,
    of_client,
)
from pledger.machine.definitions import WorkflowDefinition
from pledger.machine.outside import refuse_in_workflow_code
from pledger.updates import (
    ACCEPT_TIMEOUT,
    WithStartWorkflowOperation,
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
    LimitSummary,
    PauseSummary,
    QueueSummary,
    ResetPlan,
    ResetSummary,
    RunSummary,
    StreamSummary,
    WorkerSummary,
    dependency_summary,
    limit_summary,
    pause_summary,
    queue_summaries,
    run_summary,
    worker_summary,
)

if TYPE_CHECKING:
    from pledger.engine.connection import Connection
    from pledger.machine.declaring import UpdateMethod
    from pledger.metrics import Metrics

__all__ = [
    "QUERY_TIMEOUT",
    "CancelVerdict",
    "Client",
    "DependencySummary",
    "Description",
    "History",
    "IdConflictPolicy",
    "IdReusePolicy",
    "LimitSummary",
    "PauseSummary",
    "QueueSummary",
    "Repetition",
    "ResetPlan",
    "ResetReapplyType",
    "ResetSummary",
    "RunSummary",
    "Stream",
    "StreamItem",
    "StreamSummary",
    "WithStartWorkflowOperation",
    "WorkerSummary",
    "WorkflowHandle",
    "WorkflowUpdateHandle",
    "WorkflowUpdateStage",
    "connect",
]


T = TypeVar("T")


@contextlib.asynccontextmanager
async def connect(
    url: str,
    *,
    namespace: str = "default",
    durability: str = "power",
    payload_bytes_max: int = payloads.PAYLOAD_BYTES_MAX,
    token_keys: Sequence[bytes] = (),
    interceptors: Sequence[Interceptor] = (),
    metrics: Metrics | None = None,
    codecs: Sequence[PayloadCodec] = (),
) -> AsyncIterator[Client]:
    """Open a ledger and give the client for it; closing waits until what was asked is written.

    url: `sqlite:///orders.db` (relative), `sqlite:////var/lib/orders.db` (absolute) or `memory://name`.
    namespace: workflow ids, task queues and workers are those of one namespace; others in the same ledger are apart.
    durability: "power" survives power loss; "process" survives kill -9 only, and is faster.
    payload_bytes_max: of one value, for what this client sends and for the workers on it.
    token_keys: secrets of at least 32 bytes that sign the tokens of attempts, in place of those that the ledger keeps;
    the first one signs, all are accepted. Whoever works on the ledger, or completes activities of it, has the same.
    interceptors: of what this client asks, and of the workers on it; the first one stands outermost.
    metrics: a `pledger.metrics.Metrics`, which this client and the workers on it tell what they come to.
    codecs: what is done to every payload on its way to the ledger, the first one first (`pledger.codecs`), for what
    this client sends and for the workers on it.
    Raises UsageError for a URL it does not know and for what is no codec, InvalidPolicyError for a bound below 1,
    StoreError when the database cannot be opened.
    """
    namespace = check_id(namespace, "connect(namespace=...)")
    if not (is_whole(payload_bytes_max) and payload_bytes_max >= 1):
        raise errors.InvalidPolicyError(f"connect(payload_bytes_max={payload_bytes_max!r}) must be at least 1")
    check_token_keys(token_keys)
    _check_metrics(metrics)
    # Loaded with the first connection: many programs only define workflows.
    from pledger.engine.connection import Connection  # noqa: PLC0415
    from pledger.store import open_store  # noqa: PLC0415

    refuse_in_workflow_code()
    codecs = check_codecs(codecs)
    store = await open_store(url, durability=durability)
    recording = None if metrics is None else metrics.recording(namespace)
    connection = Connection(
        store,
        namespace=namespace,
        payload_bytes_max=payload_bytes_max,
        token_keys=token_keys,
        meter=recording,
        codecs=codecs,
    )
    try:
        if metrics is None or recording is None:
            yield Client(connection, interceptors)
        else:
            with metrics.watching(connection, recording):
                yield Client(connection, interceptors, counting=metrics.requests(recording))
    finally:
        await connection.close()


def _check_metrics(metrics: object) -> None:
    if metrics is None:
        return
    from pledger.metrics import Metrics  # noqa: PLC0415 - an extra, loaded by those alone who use it

    if not isinstance(metrics, Metrics):
        raise errors.UsageError(f"connect(metrics={metrics!r}) must be a pledger.metrics.Metrics")


class StartOptions(TypedDict, total=False):
    """How a run is started, see `Client.start_workflow`."""

    id: Required[str]
    task_queue: str
    id_reuse_policy: IdReusePolicy
    id_conflict_policy: IdConflictPolicy
    execution_timeout: timedelta | None
    priority: Priority | None
    search_attributes: TypedSearchAttributes | Sequence[SearchAttributePair[Any]]
    memo: Mapping[str, Any] | None
    connection: object
    start_signal: Callable[..., Any] | str | None
    start_signal_args: Sequence[Any]
    start_signal_id: str | None


class Client(Completions):
    """Made by `connect`. Safe to share among the tasks of one event loop.

    internals: what it shares with the workers on it; not for programs. interceptors: as given.
    counting: stands innermost.
    """

    def __init__(
        self, connection: Connection, interceptors: Sequence[Interceptor] = (), *, counting: Interceptor | None = None
    ) -> None:
        self._connection = connection
        self.interceptors = checked(interceptors, "connect(interceptors=...)")
        self._outbound = of_client(self, self.interceptors if counting is None else (*self.interceptors, counting))

    @property
    def outbound(self) -> ClientOutboundInterceptor | None:
        """The outermost interceptor of what this client and its handles ask; None without any. Not for programs."""
        return self._outbound

    @property
    def internals(self) -> Connection:
        # Whatever a client or a handle does goes through here.
        refuse_in_workflow_code()
        return self._connection

    @overload
    async def start_workflow(
        self, workflow: Callable[..., Coroutine[Any, Any, T]], *args: Any, **options: Unpack[StartOptions]
    ) -> WorkflowHandle[T]: ...
    @overload
    async def start_workflow(
        self, workflow: type | str, *args: Any, **options: Unpack[StartOptions]
    ) -> WorkflowHandle[Any]: ...
    async def start_workflow(
        self,
        workflow: Callable[..., Any] | type | str,
        *args: Any,
        id: str,  # noqa: A002 - the field's name for it
        task_queue: str = "default",
        id_reuse_policy: IdReusePolicy = IdReusePolicy.SAME_INPUT,
        id_conflict_policy: IdConflictPolicy = IdConflictPolicy.SAME_INPUT,
        execution_timeout: timedelta | None = None,
        priority: Priority | None = None,
        search_attributes: TypedSearchAttributes | Sequence[SearchAttributePair[Any]] = (),
        memo: Mapping[str, Any] | None = None,
        connection: object | None = None,
        start_signal: Callable[..., Any] | str | None = None,
        start_signal_args: Sequence[Any] = (),
        start_signal_id: str | None = None,
    ) -> WorkflowHandle[Any]:
        """Start a run; it is durable when this returns. The same id with the same input gives the same run.

        workflow: the definition (function, class or its run method), or its name where another program defines it.
        id_reuse_policy, id_conflict_policy: what to do when a closed or an open run has the id.
        execution_timeout: the run closes as timed_out after so long; the definition's deadline by default.
        priority: of its activities in their queues, where they state none.
        search_attributes: by which lists find it; memo: values for people, by name. Neither is a part of the input.
        connection: with your own transaction open, in the ledger's database: the run is there once that is committed,
        and never if it is rolled back. A connection of psycopg 3, or a session or connection of SQLAlchemy 2 on
        psycopg; on SQLite the one of `client.connection()`. The handle is of use after the commit. A refused start
        leaves your transaction as it was.
        start_signal: sent with the start, and handled before the first line of the run method. Where the id has an open
        run that the start takes, that one gets it: either way it is sent once, or there is an error. start_signal_id:
        as the `message_id` of `WorkflowHandle.signal`.
        Raises WorkflowAlreadyStartedError for another input under a taken id, UsageError for arguments that do not fit
        the workflow's parameters, PayloadError for those that cannot be kept, InvalidPolicyError for a timeout of 0 or
        less, UnknownWorkflowError when a worker of this process serves the queue and does not know the type.
        """
        options: Any = {
            "id": id,
            "task_queue": task_queue,
            "id_reuse_policy": id_reuse_policy,
            "id_conflict_policy": id_conflict_policy,
            "execution_timeout": execution_timeout,
            "priority": priority,
            "search_attributes": search_attributes,
            "memo": memo,
            "connection": connection,
            "start_signal": start_signal,
            "start_signal_args": start_signal_args,
            "start_signal_id": start_signal_id,
        }
        if self._outbound is not None:
            return await self._outbound.start_workflow(StartWorkflowInput(workflow, args, options))
        return await self._start(workflow, args, None, **options)

    async def _start(
        self,
        workflow: Callable[..., Any] | type | str,
        args: tuple[Any, ...],
        headers: dict[str, str] | None,
        *,
        id: str,  # noqa: A002 - the field's name for it
        task_queue: str = "default",
        id_reuse_policy: IdReusePolicy = IdReusePolicy.SAME_INPUT,
        id_conflict_policy: IdConflictPolicy = IdConflictPolicy.SAME_INPUT,
        execution_timeout: timedelta | None = None,
        priority: Priority | None = None,
        search_attributes: TypedSearchAttributes | Sequence[SearchAttributePair[Any]] = (),
        memo: Mapping[str, Any] | None = None,
        connection: object | None = None,
        start_signal: Callable[..., Any] | str | None = None,
        start_signal_args: Sequence[Any] = (),
        start_signal_id: str | None = None,
    ) -> WorkflowHandle[Any]:
        """What is left once the interceptors have had their say. headers: theirs, for the run."""
        beside = None
        if start_signal is not None:
            beside = starts.signal_beside(self, workflow, id, start_signal, start_signal_args, start_signal_id)
        elif start_signal_args or start_signal_id is not None:
            raise errors.UsageError(f"workflow {id!r}: start_signal_args and start_signal_id are of a start_signal")
        call = starts.StartCall(
            workflow=workflow,
            args=args,
            id=id,
            task_queue=task_queue,
            id_reuse_policy=id_reuse_policy,
            id_conflict_policy=id_conflict_policy,
            execution_timeout=execution_timeout,
            priority=priority,
            search_attributes=search_attributes,
            memo=memo,
            connection=connection,
            headers=headers,
            beside=beside,
        )
        return await starts.start(self, call)

    @overload
    async def execute_workflow(
        self, workflow: Callable[..., Coroutine[Any, Any, T]], *args: Any, **options: Unpack[StartOptions]
    ) -> T: ...
    @overload
    async def execute_workflow(self, workflow: type | str, *args: Any, **options: Unpack[StartOptions]) -> Any: ...
    async def execute_workflow(self, workflow: Any, *args: Any, **options: Any) -> Any:
        """Start a run and wait for its result; options as in `start_workflow`."""
        return await (await self.start_workflow(workflow, *args, **options)).result()

    @overload
    async def execute_update_with_start_workflow(
        self,
        update: UpdateMethod[Any, ..., Coroutine[Any, Any, T]],
        *args: Any,
        start_workflow_operation: WithStartWorkflowOperation[Any],
        **options: Unpack[UpdateOptions],
    ) -> T: ...
    @overload
    async def execute_update_with_start_workflow(
        self,
        update: Callable[..., Any] | str,
        *args: Any,
        start_workflow_operation: WithStartWorkflowOperation[Any],
        **options: Unpack[UpdateOptions],
    ) -> Any: ...
    async def execute_update_with_start_workflow(self, update: Any, *args: Any, **options: Any) -> Any:
        """As `start_update_with_start_workflow`, and wait for what the update's handler returns."""
        sent: WorkflowUpdateHandle[Any] = await self.start_update_with_start_workflow(
            update, *args, wait_for_stage=WorkflowUpdateStage.COMPLETED, **options
        )
        return await sent.result()

    async def start_update_with_start_workflow(
        self,
        update: Callable[..., Any] | str,
        *args: Any,
        start_workflow_operation: WithStartWorkflowOperation[Any],
        wait_for_stage: WorkflowUpdateStage,
        id: str | None = None,  # noqa: A002 - the field's name for it
        timeout: timedelta = ACCEPT_TIMEOUT,
    ) -> WorkflowUpdateHandle[Any]:
        """Start a run, or find the open one of its id, and send it an update. In a new run the update is handled before
        the first line of the run method.

        The run stays, whatever becomes of the update: `start_workflow_operation.workflow_handle()` has its handle.
        Raises what `start_workflow` and `WorkflowHandle.start_update` raise.
        """
        start_workflow_operation.use()
        given = StartWorkflowUpdateWithStartInput(start_workflow_operation, update, args, id, wait_for_stage, timeout)
        if self._outbound is not None:
            return await self._outbound.start_update_with_start_workflow(given)
        return await self._update_with_start(given)

    async def _update_with_start(self, given: StartWorkflowUpdateWithStartInput) -> WorkflowUpdateHandle[Any]:
        operation = given.start_workflow_operation
        call = starts.StartCall(
            workflow=operation.workflow, args=operation.args, headers=given.headers or None, **operation.options
        )
        handle = WorkflowHandle[Any](self, call.id, None, call.definition)
        name, encoded, signature = handle._message(  # noqa: SLF001 - a part of the same face
            "update", given.update, tuple(given.args)
        )
        sent = UpdateAccepted(name, encoded, check_update_id(self.internals, given.id, name, call.id))
        handle = await starts.start(self, replace(call, beside=starts.update_beside(sent)))
        operation.started(handle)
        return await start_update(
            self, handle, sent, signature, stage=given.wait_for_stage, timeout=given.timeout, is_known=True
        )

    def handle(
        self, workflow_id: str, *, run_id: str | None = None, workflow: Callable[..., Any] | type | None = None
    ) -> WorkflowHandle[Any]:
        """A handle on a run that was started elsewhere; without run_id the newest run of the id.

        workflow: its definition, so that results come back as the annotated type. Nothing is asked of the store yet.
        Raises UsageError for an id that no run can have.
        """
        check_id(workflow_id, "the id of a run")
        check_id(run_id or "", f"the run id of workflow {workflow_id!r}")
        return WorkflowHandle(self, workflow_id, run_id, None if workflow is None else WorkflowDefinition.of(workflow))

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        """A transaction on your own tables in the ledger's database, committed at the end of the block, and rolled back
        when it raises. What is started with `start_workflow(..., connection=...)` meanwhile is committed with it.

        On SQLite the ledger's file, by `await connection.execute(sql, parameters)`, whose result has `fetchone`,
        `fetchall` and `rowcount`: from the first statement on nobody else writes, so it is rolled back after 2 s. On
        PostgreSQL a psycopg AsyncConnection.
        Raises UsageError for a ledger in memory, StoreUnavailableError when the database does not answer.
        """
        store = self.internals.store
        await store.prepare_transactions((), 1)
        transaction = store.transaction()
        try:
            await transaction.open()
            yield transaction.connection
            await transaction.commit()
        finally:
            await transaction.close()

    async def list_workflows(
        self,
        filter: str = "",  # noqa: A002
        *,
        view: View | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[RunSummary]:
        """The runs that meet the filter, the newest first: `status = 'running' and amount > 100 order by amount desc`.

        Conditions on what every run has (workflow_id, type, status, started_at, ...) and on search attributes, by
        = != < <= > >= in, between, is null, like 'prefix%', joined by and, or, not: see docs/search.md.
        view: "needs-attention" (blocked, retrying, overdue, or with a long history) or "oldest-open"; with a filter,
        those of them that meet it too. Raises InvalidFilterError.
        """
        pauses = await self.internals.store.read_pauses(self.internals.namespace)
        question = await pages.question(self.internals, filter, view, pauses)
        async for page in pages.pages(self.internals, question, limit):
            for row, labels in page:
                attention = views.attention(row, labels, question.now_ms) if view == "needs-attention" else None
                yield run_summary(row, pausing.pauses_of(pauses, row), labels, attention)

    async def count_workflows(self, filter: str = "", *, view: View | None = None) -> int:  # noqa: A002
        """How many runs meet the filter."""
        question = await pages.question(self.internals, filter, view)
        return await self.internals.store.count_runs(self.internals.namespace, question.where)

    #: Short names of the same.
    list = list_workflows
    count = count_workflows

    async def search_attribute_keys(self) -> tuple[SearchAttributeKey[Any], ...]:
        """Of the search attributes that runs of this namespace have, by name: what a filter may refer to."""
        found = await self.internals.store.attribute_kinds(self.internals.namespace)
        return tuple(SearchAttributeKey(name, kind) for name, kind in found)  # type: ignore[arg-type] # one of KINDS

    async def pause(
        self, kind: Literal["type", "queue", "namespace"], name: str = "", *, reason: str = "", by: str | None = None
    ) -> PauseSummary:
        """Have every run of a workflow type, of a task queue or of this client's namespace stand still.

        Durable when this returns. Attempts that are under way end, and what they bring is kept; none begins, and no run
        goes on: a worker lets go of what it holds when it next looks, within a second (PostgreSQL: at once, or within
        four seconds when a notification is lost). Starts and messages are accepted and wait. No clock stops: what fell
        due happens on `resume`. by: who asks; user@host by default.
        """
        scope = pausing.scope_of(self.internals.namespace, kind, name)
        return pause_summary(await pausing.pause(self.internals, scope, reason, by))

    async def resume(
        self, kind: Literal["type", "queue", "namespace"], name: str = "", *, rate: float | None = None
    ) -> PauseSummary | None:
        """Lift a pause; what it was, or None when there was none.

        rate: let at most so many runs, or activities that wait in the store, a second go on until what waits now has;
        None: all at once. Raises InvalidPolicyError for a rate that is not more than 0.
        """
        scope = pausing.scope_of(self.internals.namespace, kind, name)
        found = await pausing.resume(self.internals, scope, rate)
        return None if found is None else pause_summary(found)

    async def pauses(self) -> tuple[PauseSummary, ...]:
        """What is paused in this namespace, single runs too, oldest first."""
        return tuple(map(pause_summary, await self.internals.store.read_pauses(self.internals.namespace)))

    async def queues(self) -> tuple[QueueSummary, ...]:
        """What waits in the task queues of this namespace and who serves them, by name."""
        now_ms = await self.internals.now_ms()
        return queue_summaries(
            await self.internals.store.read_queues(self.internals.namespace, now_ms), await self.workers()
        )

    async def limits(self) -> tuple[LimitSummary, ...]:
        """The limits of this namespace that a worker has stated, or an operator has set, and what is in use of them."""
        return tuple(map(limit_summary, await self.internals.store.read_limits(self.internals.namespace)))

    async def set_limit(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        rate: float | None = None,
        per: timedelta = timedelta(seconds=1),
    ) -> None:
        """Have a limit hold other numbers than its code states, from the next claim on and over all workers.

        What is None stays that of the code. concurrency: 0 lets nothing start. What runs already runs on. A limit that
        no code states yet is kept for when one does. Raises InvalidPolicyError for values out of range.
        """
        await operators.set_limit(self.internals, name, override_rule(name, concurrency, rate, per))

    async def reset_limit(self, name: str) -> None:
        """Have the numbers of the code hold again."""
        await operators.set_limit(self.internals, name, None)

    async def dependencies(self) -> tuple[DependencySummary, ...]:
        """The systems that activities of this namespace depend on (`RetryBudget`), as they are now, by name."""
        rows = await self.internals.store.read_dependencies(self.internals.namespace)
        return tuple(dependency_summary(name, row) for name, row in rows.items())

    async def pause_dependency(self, name: str, *, reason: str = "", by: str | None = None) -> DependencySummary:
        """Have no attempt begin that depends on it, until it is resumed. Durable when this returns.

        Attempts that are under way end, and what they bring is kept. One that a worker starts straight after the commit
        of its own run may still begin within two seconds. by: who asks; user@host by default.
        Raises UsageError for one that no worker has stated.
        """
        _, after = await operators.ask_dependency(self.internals, name, is_pause=True, reason=reason, by=by)
        return dependency_summary(name, after)

    async def resume_dependency(
        self, name: str, *, reason: str = "", by: str | None = None, at_once: bool = False
    ) -> DependencySummary:
        """Have attempts begin again, whether an operator or its circuit breaker has stopped them: one at a time first,
        more while they succeed; with at_once, or without a breaker, all. Raises UsageError as `pause_dependency`."""
        _, after = await operators.ask_dependency(
            self.internals, name, is_pause=False, reason=reason, by=by, at_once=at_once
        )
        return dependency_summary(name, after)

    async def workers(self) -> tuple[WorkerSummary, ...]:
        """The worker processes of this namespace, and those that died and whose runs nobody has taken over yet."""
        now_ms = await self.internals.now_ms()
        sessions = await self.internals.store.read_sessions(self.internals.namespace)
        return tuple(worker_summary(each, now_ms) for each in sessions)

    async def ledger(self) -> dict[str, Any]:
        """About the database: its kind, place, version, durability and size, as the store tells it."""
        return await self.internals.store.describe()

    async def back_up(self, path: str | os.PathLike[str]) -> int:
        """Copy the whole ledger, all namespaces, as it is at one instant, to a new file; everybody goes on meanwhile.

        Gives its size in bytes. The file is a ledger by itself, with mode 0600, checked and on the disk on return.
        Raises UsageError when it is there already, or for a ledger in memory; StoreError when it cannot be written.
        """
        return await self.internals.store.back_up(os.fspath(path))

    async def now(self) -> datetime:
        """The ledger's time, with zone (UTC)."""
        return utc(await self.internals.now_ms())

    # Inside -----------------------------------------------------------------------------------------------------------
