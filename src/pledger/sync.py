"""The blocking facade: the same client for code without an event loop (Django, Flask, notebooks, scripts).

Async once: everything here runs the one client on a loop in a thread of its own and waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import os
import threading
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar, Unpack, overload

from pledger.client import (
    CancelVerdict,
    Client,
    DependencySummary,
    Description,
    History,
    LimitSummary,
    PauseSummary,
    QueueSummary,
    ResetPlan,
    ResetReapplyType,
    RunSummary,
    WithStartWorkflowOperation,
    WorkflowHandle,
    WorkflowUpdateHandle,
    WorkflowUpdateStage,
    connect,
)
from pledger.completions import TOKEN_KEEP
from pledger.errors import StoreError, UsageError
from pledger.following import StreamItem
from pledger.handle import ResetOptions
from pledger.history import payloads
from pledger.history.attributes import SearchAttributeKey
from pledger.history.sealing import PayloadCodec
from pledger.machine import guards
from pledger.machine.definitions import ActivityDefinition
from pledger.machine.outside import refuse_in_workflow_code
from pledger.worker import Worker

if TYPE_CHECKING:
    from pledger.engine.port.transactions import BlockingTransaction
    from pledger.engine.search.views import View
    from pledger.metrics import Metrics

T = TypeVar("T")

logger = logging.getLogger("pledger.run")

#: A script that waits longer than this says what for.
SILENCE_S: Final = 1.0


class SyncClient:
    """A client whose calls block. Use as a context manager, or `close()` it. Safe to share among threads.

    Arguments and errors as in `connect`; methods as in `Client`.
    """

    def __init__(
        self,
        url: str,
        *,
        namespace: str = "default",
        durability: str = "power",
        payload_bytes_max: int = payloads.PAYLOAD_BYTES_MAX,
        token_keys: Sequence[bytes] = (),
        metrics: Metrics | None = None,
        codecs: Sequence[PayloadCodec] = (),
    ) -> None:
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="pledger-sync-client", daemon=True)
        self._thread.start()
        self._stack = contextlib.AsyncExitStack()
        try:
            opened = connect(
                url,
                namespace=namespace,
                durability=durability,
                payload_bytes_max=payload_bytes_max,
                token_keys=token_keys,
                metrics=metrics,
                codecs=codecs,
            )
            self._client: Client = self._wait(self._stack.enter_async_context(opened))
        except BaseException:
            self._stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Write what was asked, then let go of the ledger. In a forked child: nothing, it is all the parent's."""
        if os.getpid() == self._pid and not self._loop.is_closed():
            try:
                self._wait(self._stack.aclose())
            finally:
                self._stop()

    @contextlib.contextmanager
    def connection(self) -> Iterator[Any]:
        """As `Client.connection`; the connection's calls block. On PostgreSQL a psycopg Connection."""
        transaction = self._wait(self._new_transaction())
        try:
            transaction.open()
            yield transaction.connection
            transaction.commit()
        finally:
            transaction.close()

    async def _new_transaction(self) -> BlockingTransaction:
        store = self._client.internals.store
        await store.prepare_transactions((), 1)
        return store.blocking_transaction()

    def start_workflow(self, workflow: Callable[..., Any] | type | str, *args: Any, **options: Any) -> SyncHandle:
        """connection: a blocking one; one of another event loop cannot be used on that of this client."""
        connection = options.get("connection")
        if inspect.iscoroutinefunction(getattr(connection, "commit", None)):
            raise UsageError(
                f"connection={connection!r} belongs to an event loop: give a SyncClient a blocking connection, or use "
                "the client of pledger.connect() on that loop"
            )
        return SyncHandle(self, self._wait(self._client.start_workflow(workflow, *args, **options)))

    def execute_workflow(self, workflow: Callable[..., Any] | type | str, *args: Any, **options: Any) -> Any:
        return self.start_workflow(workflow, *args, **options).result()

    def start_update_with_start_workflow(
        self,
        update: Callable[..., Any] | str,
        *args: Any,
        start_workflow_operation: WithStartWorkflowOperation[Any],
        **options: Any,
    ) -> SyncUpdateHandle:
        sent = self._client.start_update_with_start_workflow(
            update, *args, start_workflow_operation=start_workflow_operation, **options
        )
        return SyncUpdateHandle(self, self._wait(sent))

    def execute_update_with_start_workflow(
        self,
        update: Callable[..., Any] | str,
        *args: Any,
        start_workflow_operation: WithStartWorkflowOperation[Any],
        **options: Any,
    ) -> Any:
        return self.start_update_with_start_workflow(
            update,
            *args,
            start_workflow_operation=start_workflow_operation,
            wait_for_stage=WorkflowUpdateStage.COMPLETED,
            **options,
        ).result()

    def handle(self, workflow_id: str, **options: Any) -> SyncHandle:
        return SyncHandle(self, self._client.handle(workflow_id, **options))

    def list_workflows(
        self,
        filter: str = "",  # noqa: A002
        *,
        view: View | None = None,
        limit: int | None = None,
    ) -> Iterator[RunSummary]:
        found = self._client.list_workflows(filter, view=view, limit=limit)
        while True:
            try:
                yield self._wait(found.__anext__())
            except StopAsyncIteration:
                return

    def count_workflows(self, filter: str = "", *, view: View | None = None) -> int:  # noqa: A002
        count: int = self._wait(self._client.count_workflows(filter, view=view))
        return count

    list = list_workflows
    count = count_workflows

    def search_attribute_keys(self) -> tuple[SearchAttributeKey[Any], ...]:
        keys: tuple[SearchAttributeKey[Any], ...] = self._wait(self._client.search_attribute_keys())
        return keys

    def pause(
        self, kind: Literal["type", "queue", "namespace"], name: str = "", *, reason: str = "", by: str | None = None
    ) -> PauseSummary:
        pause: PauseSummary = self._wait(self._client.pause(kind, name, reason=reason, by=by))
        return pause

    def resume(
        self, kind: Literal["type", "queue", "namespace"], name: str = "", *, rate: float | None = None
    ) -> PauseSummary | None:
        pause: PauseSummary | None = self._wait(self._client.resume(kind, name, rate=rate))
        return pause

    def pauses(self) -> tuple[PauseSummary, ...]:
        pauses: tuple[PauseSummary, ...] = self._wait(self._client.pauses())
        return pauses

    def dependencies(self) -> tuple[DependencySummary, ...]:
        found: tuple[DependencySummary, ...] = self._wait(self._client.dependencies())
        return found

    def pause_dependency(self, name: str, *, reason: str = "", by: str | None = None) -> DependencySummary:
        found: DependencySummary = self._wait(self._client.pause_dependency(name, reason=reason, by=by))
        return found

    def resume_dependency(
        self, name: str, *, reason: str = "", by: str | None = None, at_once: bool = False
    ) -> DependencySummary:
        asked = self._client.resume_dependency(name, reason=reason, by=by, at_once=at_once)
        found: DependencySummary = self._wait(asked)
        return found

    def queues(self) -> tuple[QueueSummary, ...]:
        queues: tuple[QueueSummary, ...] = self._wait(self._client.queues())
        return queues

    def limits(self) -> tuple[LimitSummary, ...]:
        limits: tuple[LimitSummary, ...] = self._wait(self._client.limits())
        return limits

    def set_limit(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        rate: float | None = None,
        per: timedelta = timedelta(seconds=1),
    ) -> None:
        self._wait(self._client.set_limit(name, concurrency=concurrency, rate=rate, per=per))

    def reset_limit(self, name: str) -> None:
        self._wait(self._client.reset_limit(name))

    def complete_activity(
        self, token: str | bytes, result: Any = None, *, activity: Callable[..., Any] | None = None
    ) -> None:
        self._wait(self._client.complete_activity(token, result, activity=activity))

    def fail_activity(self, token: str | bytes, error: BaseException | str) -> None:
        self._wait(self._client.fail_activity(token, error))

    def heartbeat_activity(self, token: str | bytes, *details: Any) -> bool:
        is_asked: bool = self._wait(self._client.heartbeat_activity(token, *details))
        return is_asked

    def report_cancellation(self, token: str | bytes, reason: str = "") -> None:
        self._wait(self._client.report_cancellation(token, reason))

    def rotate_token_keys(self, *, keep: timedelta = TOKEN_KEEP) -> str:
        key_id: str = self._wait(self._client.rotate_token_keys(keep=keep))
        return key_id

    def _wait(self, call: Any) -> Any:
        try:
            self._check_usable()
        except BaseException:
            if inspect.iscoroutine(call):
                call.close()
            raise

        async def awaited() -> Any:
            return await call

        return asyncio.run_coroutine_threadsafe(awaited(), self._loop).result()

    def _check_usable(self) -> None:
        if not guards.are_off():
            refuse_in_workflow_code()
        if (why_not := self._unusable()) is not None:
            raise UsageError(why_not)

    def _unusable(self) -> str | None:
        if os.getpid() != self._pid:  # its thread is not here: who waits for it would wait for ever
            return (
                "this SyncClient was opened before this process forked, and works in its parent alone; open one in "
                "each process, after the fork"
            )
        if self._loop.is_closed():
            return "this SyncClient is closed; open another one"
        if threading.current_thread() is self._thread:
            return "SyncClient was called from its own loop; use the async client there"
        return None

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class SyncHandle:
    """A `WorkflowHandle` whose calls block."""

    def __init__(self, client: SyncClient, handle: WorkflowHandle[Any]) -> None:
        self._client = client
        self._handle = handle
        self._wait = client._wait  # noqa: SLF001 - the other half of one facade

    @property
    def workflow_id(self) -> str:
        return self._handle.workflow_id

    @property
    def run_id(self) -> str | None:
        return self._handle.run_id

    def result(self, *, wait_while_blocked: bool = False, follow_runs: bool = True) -> Any:
        return self._wait(self._handle.result(wait_while_blocked=wait_while_blocked, follow_runs=follow_runs))

    def signal(self, signal: Callable[..., Any] | str, *args: Any, message_id: str | None = None) -> None:
        self._wait(self._handle.signal(signal, *args, message_id=message_id))

    def query(self, query: Callable[..., Any] | str, *args: Any, **options: Any) -> Any:
        return self._wait(self._handle.query(query, *args, **options))

    def start_update(
        self, update: Callable[..., Any] | str, *args: Any, wait_for_stage: WorkflowUpdateStage, **options: Any
    ) -> SyncUpdateHandle:
        sent = self._handle.start_update(update, *args, wait_for_stage=wait_for_stage, **options)
        return SyncUpdateHandle(self._client, self._wait(sent))

    def execute_update(self, update: Callable[..., Any] | str, *args: Any, **options: Any) -> Any:
        return self.start_update(update, *args, wait_for_stage=WorkflowUpdateStage.COMPLETED, **options).result()

    def get_update_handle(self, id: str, **options: Any) -> SyncUpdateHandle:  # noqa: A002 - the field's name for it
        return SyncUpdateHandle(self._client, self._handle.get_update_handle(id, **options))

    def cancel(self, reason: str = "") -> CancelVerdict:
        verdict: CancelVerdict = self._wait(self._handle.cancel(reason))
        return verdict

    def cancel_verdict(self, request_id: str) -> CancelVerdict:
        verdict: CancelVerdict = self._wait(self._handle.cancel_verdict(request_id))
        return verdict

    def terminate(self, reason: str = "") -> None:
        self._wait(self._handle.terminate(reason))

    def reset(self, event_id: int, **options: Unpack[ResetOptions]) -> SyncHandle:
        return SyncHandle(self._client, self._wait(self._handle.reset(event_id, **options)))

    def redrive(self, *, reason: str = "", by: str | None = None, request_id: str | None = None) -> SyncHandle:
        again = self._handle.redrive(reason=reason, by=by, request_id=request_id)
        return SyncHandle(self._client, self._wait(again))

    def plan_reset(self, event_id: int, *, reapply: ResetReapplyType = ResetReapplyType.SIGNAL_AND_UPDATE) -> ResetPlan:
        plan: ResetPlan = self._wait(self._handle.plan_reset(event_id, reapply=reapply))
        return plan

    def plan_redrive(self) -> ResetPlan:
        plan: ResetPlan = self._wait(self._handle.plan_redrive())
        return plan

    def pause(self, reason: str = "", *, by: str | None = None) -> PauseSummary:
        pause: PauseSummary = self._wait(self._handle.pause(reason, by=by))
        return pause

    def resume(self) -> PauseSummary | None:
        pause: PauseSummary | None = self._wait(self._handle.resume())
        return pause

    def stream(
        self,
        topic: str,
        from_offset: int = 0,
        *,
        type: Any = Any,  # noqa: A002 - what it is
        follow: bool = True,
    ) -> Generator[StreamItem[Any], None, None]:
        """Whoever leaves the loop early may close it; else that is done when the iterator is collected."""
        items = self._handle.stream(topic, from_offset, type=type, follow=follow)
        try:
            while True:
                try:
                    item: StreamItem[Any] = self._wait(items.__anext__())
                except StopAsyncIteration:
                    return
                yield item
        finally:
            self._wait(items.aclose())

    def describe(self) -> Description:
        description: Description = self._wait(self._handle.describe())
        return description

    def history(self) -> History:
        history: History = self._wait(self._handle.history())
        return history


class SyncUpdateHandle:
    """A `WorkflowUpdateHandle` whose calls block."""

    def __init__(self, client: SyncClient, handle: WorkflowUpdateHandle[Any]) -> None:
        self._handle = handle
        self._wait = client._wait  # noqa: SLF001 - the other half of one facade

    @property
    def id(self) -> str:
        return self._handle.id

    @property
    def workflow_id(self) -> str:
        return self._handle.workflow_id

    @property
    def workflow_run_id(self) -> str | None:
        return self._handle.workflow_run_id

    def result(self, *, wait_while_blocked: bool = False) -> Any:
        return self._wait(self._handle.result(wait_while_blocked=wait_while_blocked))


@overload
def run(
    workflow: Callable[..., Coroutine[Any, Any, T]],
    *args: Any,
    id: str,
    url: str = ...,
    activities: Sequence[object] | None = ...,
    timeout: timedelta | None = ...,
) -> T: ...
@overload
def run(
    workflow: type,
    *args: Any,
    id: str,
    url: str = ...,
    activities: Sequence[object] | None = ...,
    timeout: timedelta | None = ...,
) -> Any: ...
def run(
    workflow: Callable[..., Any] | type,
    *args: Any,
    id: str,  # noqa: A002 - the field's name for it
    url: str = "sqlite:///pledger.db",
    activities: Sequence[object] | None = None,
    timeout: timedelta | None = None,
) -> Any:
    """The whole thing in a script: open the ledger, work, start the run, wait for its result.

    A second call with the same id and input, after a crash or the end, gives the same run and its result.
    activities: those that the workflow uses; by default all that its module defines or imports.
    timeout: give up waiting after so long (the run goes on at the next call); None is without end.
    While another process holds the run, the log (`pledger.run`) says so.
    """
    known = activities if activities is not None else _activities_near(workflow)

    async def main() -> Any:
        async with connect(url) as client, Worker(client, workflows=[workflow], activities=known):
            handle = await client.start_workflow(workflow, *args, id=id)
            telling = asyncio.create_task(_tell_holder(client, handle))
            try:
                return await asyncio.wait_for(handle.result(), None if timeout is None else timeout.total_seconds())
            finally:
                telling.cancel()
                await asyncio.wait([telling])

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(main())
    raise UsageError(
        "pledger.run() runs a loop of its own, and this thread runs one already (a notebook, an async function): use "
        "`async with pledger.connect(...) as client, Worker(client, ...)` there, or call it in another thread"
    )


async def _tell_holder(client: Client, handle: WorkflowHandle[Any]) -> None:
    """Say in the log who holds the run, should that be another process: a script that only waits looks dead."""
    await asyncio.sleep(SILENCE_S)
    try:
        run = await handle.describe()
    except StoreError:
        return  # whoever waits for the result is told
    ours = client.internals.session_keys()
    holder = next((each for each in run.workers if each.identity == run.owner), None)
    if holder is None or holder.session_key in ours:
        return
    lease_s = max(0.0, (holder.expires - run.now).total_seconds())
    # A warning, so that a script that has set up no logging shows it too.
    logger.warning(
        "workflow %r is held by another process, worker %s, and goes on there; should that be dead, it goes on here "
        "once its lease is over, in %.1f s",
        handle.workflow_id,
        run.owner,
        lease_s,
    )


def _activities_near(workflow: Any) -> list[Any]:
    """The activities that the workflow's own module knows by name."""
    namespace = getattr(workflow, "__globals__", None)
    if namespace is None:
        run_method = next((each for each in vars(workflow).values() if hasattr(each, "__globals__")), None)
        namespace = getattr(run_method, "__globals__", {})
    found = {id(each): each for each in namespace.values() if isinstance(each, ActivityDefinition)}
    return list(found.values())
