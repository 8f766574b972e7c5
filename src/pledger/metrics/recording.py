"""What the engine tells, as Prometheus counts it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import Counter, Histogram

from pledger import errors
from pledger.interceptors import (
    CancelWorkflowInput,
    ClientOutboundInterceptor,
    Interceptor,
    QueryWorkflowInput,
    SignalWorkflowInput,
    StartWorkflowInput,
    StartWorkflowUpdateInput,
    StartWorkflowUpdateWithStartInput,
    TerminateWorkflowInput,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from pledger.engine.meter import Ending, Standing
    from pledger.engine.outage import Subject
    from pledger.engine.port.records import RunStatus
    from pledger.handle import WorkflowHandle
    from pledger.metrics.families import Recorded
    from pledger.updates import WorkflowUpdateHandle
    from pledger.views import CancelVerdict

#: How a run ends here, and what counts it. One that is terminated is ended by a client: see `request`.
_CLOSED: Final[dict[str, str]] = {
    "completed": "workflow_completed",
    "failed": "workflow_failed",
    "cancelled": "workflow_canceled",
    "continued_as_new": "workflow_continue_as_new",
    "timed_out": "workflow_timed_out",
}


class Series:
    """Those of some leading labels. Each is looked up once."""

    def __init__(self, recorded: Mapping[str, Recorded], *labels: str) -> None:
        self.labels = labels
        self._recorded = recorded
        self._found: dict[tuple[str, ...], Any] = {}

    def count(self, name: str, *labels: str, by: int = 1) -> None:
        self._of(name, *labels).inc(by)

    def observe(self, name: str, *labels: str, value: float) -> None:
        self._of(name, *labels).observe(value)

    def _of(self, name: str, *labels: str) -> Any:
        key = (name, *labels)
        found = self._found.get(key)
        if found is None:
            family = self._recorded[name]
            assert isinstance(family, Counter | Histogram)
            found = self._found[key] = family.labels(*self.labels, *labels)
        return found


class WorkerRecording:
    """See `engine.meter.WorkerMeter`. gone: called with this when its worker is gone."""

    def __init__(self, series: Series, gone: Callable[[WorkerRecording], None]) -> None:
        self.series = series
        self.standing: Callable[[], Standing] | None = None
        self._gone = gone

    def begun(self, standing: Callable[[], Standing]) -> None:
        self.standing = standing
        self.series.count("worker_start")

    def activated(self, workflow_type: str, waited_s: float, took_s: float, *, cached: bool) -> None:
        self.series.observe("workflow_task_schedule_to_start_latency", workflow_type, value=waited_s)
        self.series.observe("workflow_task_execution_latency", workflow_type, value=took_s)
        if cached:
            self.series.count("sticky_cache_hit")

    def blocked(self, workflow_type: str, reason: str) -> None:
        self.series.count("workflow_task_execution_failed", workflow_type, reason)

    def replayed(self, workflow_type: str, took_s: float) -> None:
        self.series.observe("workflow_task_replay_latency", workflow_type, value=took_s)
        self.series.count("sticky_cache_miss")

    def evicted(self) -> None:
        self.series.count("sticky_cache_total_forced_eviction")

    def closed(self, workflow_type: str, status: RunStatus, took_s: float) -> None:
        self.series.count(_CLOSED[status], workflow_type)
        self.series.observe("workflow_endtoend_latency", workflow_type, value=took_s)

    def warned(self, workflow_type: str) -> None:
        self.series.count("history_warning", workflow_type)

    def refused(self, workflow_type: str, signals: int) -> None:
        self.series.count("corrupted_signals", workflow_type, by=signals)

    def attempt_begun(self, activity_type: str, waited_s: float) -> None:
        self.series.observe("activity_schedule_to_start_latency", activity_type, value=waited_s)

    def attempt_ended(self, activity_type: str, ending: Ending, took_s: float | None) -> None:
        if took_s is not None:
            self.series.observe("activity_execution_latency", activity_type, value=took_s)
        if ending == "cancelled":
            self.series.count("activity_execution_cancelled", activity_type)
        elif ending not in {"completed", "outside", "benign"}:
            self.series.count("activity_execution_failed", activity_type, ending)

    def activity_completed(self, activity_type: str, took_s: float) -> None:
        self.series.observe("activity_succeed_endtoend_latency", activity_type, value=took_s)

    def lease_lost(self) -> None:
        self.series.count("worker_lease_lost")

    def stopped(self) -> None:
        self._gone(self)


class ConnectionRecording:
    """See `engine.meter.Meter`. workers: those that are there."""

    def __init__(self, recorded: Mapping[str, Recorded], namespace: str) -> None:
        self._recorded = recorded
        self.namespace = namespace
        self.series = Series(recorded, namespace)
        self.workers: list[WorkerRecording] = []

    def worker(self, task_queue: str) -> WorkerRecording:
        found = WorkerRecording(Series(self._recorded, self.namespace, task_queue), self._gone)
        self.workers.append(found)
        return found

    def _gone(self, worker: WorkerRecording) -> None:
        if worker in self.workers:
            self.workers.remove(worker)

    def committed(self, operations: int, took_s: float) -> None:
        self.series.observe("store_commit_latency", value=took_s)
        self.series.observe("store_commit_operations", value=operations)

    def store_failed(self, subject: Subject) -> None:
        self.series.count("store_failure", subject)


class Requests(Interceptor):
    """Counts what a client asks."""

    def __init__(self, series: Series) -> None:
        self._series = series

    def intercept_client(self, next: ClientOutboundInterceptor) -> ClientOutboundInterceptor:  # noqa: A002 - the field's name for it
        return _Counted(next, self._series)


class _Counted(ClientOutboundInterceptor):
    def __init__(self, next: ClientOutboundInterceptor, series: Series) -> None:  # noqa: A002 - as above
        super().__init__(next)
        self._series = series

    async def _ask(self, operation: str, asking: Awaitable[Any]) -> Any:
        self._series.count("request", operation)
        began_s = time.perf_counter()
        try:
            return await asking
        except Exception as error:
            # The names of our own errors are few; those of others could be any.
            failure = type(error).__name__ if isinstance(error, errors.PledgerError) else "other"
            self._series.count("request_failure", operation, failure)
            raise
        finally:
            self._series.observe("request_latency", operation, value=time.perf_counter() - began_s)

    async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any]:  # noqa: A002 - as above
        handle: WorkflowHandle[Any] = await self._ask("StartWorkflow", super().start_workflow(input))
        return handle

    async def signal_workflow(self, input: SignalWorkflowInput) -> None:  # noqa: A002 - as above
        await self._ask("SignalWorkflow", super().signal_workflow(input))

    async def query_workflow(self, input: QueryWorkflowInput) -> Any:  # noqa: A002 - as above
        return await self._ask("QueryWorkflow", super().query_workflow(input))

    async def start_workflow_update(self, input: StartWorkflowUpdateInput) -> WorkflowUpdateHandle[Any]:  # noqa: A002 - as above
        handle: WorkflowUpdateHandle[Any] = await self._ask("UpdateWorkflow", super().start_workflow_update(input))
        return handle

    async def start_update_with_start_workflow(
        self,
        input: StartWorkflowUpdateWithStartInput,  # noqa: A002 - as above
    ) -> WorkflowUpdateHandle[Any]:
        asking = super().start_update_with_start_workflow(input)
        handle: WorkflowUpdateHandle[Any] = await self._ask("UpdateWithStartWorkflow", asking)
        return handle

    async def cancel_workflow(self, input: CancelWorkflowInput) -> CancelVerdict:  # noqa: A002 - as above
        verdict: CancelVerdict = await self._ask("CancelWorkflow", super().cancel_workflow(input))
        return verdict

    async def terminate_workflow(self, input: TerminateWorkflowInput) -> None:  # noqa: A002 - as above
        await self._ask("TerminateWorkflow", super().terminate_workflow(input))
