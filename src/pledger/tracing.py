"""Tracing with OpenTelemetry: spans of starts, runs, activities and attempts, as one interceptor.

    connect(url, interceptors=[TracingInterceptor()])      # in clients and workers: pip install pledger[opentelemetry]

    StartWorkflow:fulfil                  a client starts a run
      RunWorkflow:fulfil                  its code begins; ends at once, since it may go on in another process
        StartActivity:charge              the code asks for an activity
          RunActivity:charge              an attempt, as long as it takes
            (spans of your own)

The context travels in the headers of the run and of its activities. Spans of workflow code are made live and never on
replay, and their ids come from the run's id and what came before: a worker that takes a run over makes the same ones,
so that what it starts has the parents that it would have had.
"""

from __future__ import annotations

import hashlib
import threading
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import propagate, trace

from pledger import activity, workflow
from pledger.errors import ApplicationError, ApplicationErrorCategory
from pledger.interceptors import (
    ActivityInboundInterceptor,
    ClientOutboundInterceptor,
    ExecuteActivityInput,
    ExecuteWorkflowInput,
    HandleSignalInput,
    HandleUpdateInput,
    Interceptor,
    QueryWorkflowInput,
    SignalWorkflowInput,
    StartActivityInput,
    StartWorkflowInput,
    StartWorkflowUpdateInput,
    StartWorkflowUpdateWithStartInput,
    WorkflowInboundInterceptor,
    WorkflowOutboundInterceptor,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pledger.handle import WorkflowHandle
    from pledger.machine.context import ActivityHandle
    from pledger.updates import WorkflowUpdateHandle

__all__ = ["TracingInterceptor"]

#: Attributes of spans: all of bounded size, none of them a value of yours.
WORKFLOW_ID: Final = "pledger.workflow.id"
RUN_ID: Final = "pledger.run.id"
ATTEMPT: Final = "pledger.activity.attempt"


class TracingInterceptor(Interceptor):
    """tracer: where the spans are made; by default one of the global provider, as it is when this is made."""

    def __init__(self, tracer: Any = None) -> None:
        self.tracer = trace.get_tracer("pledger") if tracer is None else tracer
        self._ids = _Ids(self.tracer)

    def intercept_client(self, next: ClientOutboundInterceptor) -> ClientOutboundInterceptor:  # noqa: A002 - the field's name for it
        return _Client(next, self.tracer)

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - as above
        return _Activity(next, self.tracer)

    def workflow_interceptor_class(self) -> type[WorkflowInboundInterceptor]:
        return type("_TracedWorkflow", (_Workflow,), {"tracing": self})

    def instant(self, name: str, context: Any, span_id: int, trace_id: int, attributes: Mapping[str, str]) -> None:
        """A span that begins and ends now, with these ids."""
        with self._ids.forced(span_id, trace_id):
            self.tracer.start_span(name, context=context, attributes=attributes).end()


class _Ids:
    """The ids of a tracer's spans: its own, but where they are said. A tracer that does not let itself be told (of
    another SDK) makes its own; then what a taken-over run starts has a parent that nobody has seen."""

    def __init__(self, tracer: Any) -> None:
        self._inner = getattr(tracer, "id_generator", None)
        self._said = threading.local()
        if self._inner is not None:
            tracer.id_generator = self

    def forced(self, span_id: int, trace_id: int) -> _Ids:
        self._said.ids = span_id, trace_id
        return self

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        self._said.ids = None

    def generate_span_id(self) -> int:
        said = getattr(self._said, "ids", None)
        found: int = self._inner.generate_span_id() if said is None else said[0]  # type: ignore[union-attr] # it is there
        return found

    def generate_trace_id(self) -> int:
        said = getattr(self._said, "ids", None)
        found: int = self._inner.generate_trace_id() if said is None else said[1]  # type: ignore[union-attr] # as above
        return found

    def is_trace_id_random(self) -> bool:
        return False


class _Client(ClientOutboundInterceptor):
    def __init__(self, next: ClientOutboundInterceptor, tracer: Any) -> None:  # noqa: A002 - as above
        super().__init__(next)
        self._tracer = tracer

    def _span(self, kind: str, what: object, workflow_id: str) -> Any:
        name = what if isinstance(what, str) else getattr(what, "name", None) or getattr(what, "__name__", "?")
        attributes = {WORKFLOW_ID: workflow_id}
        return self._tracer.start_as_current_span(f"{kind}:{name}", kind=trace.SpanKind.CLIENT, attributes=attributes)

    async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any]:  # noqa: A002 - as above
        with self._span("StartWorkflow", input.workflow, str(input.options.get("id"))):
            propagate.inject(input.headers)
            return await super().start_workflow(input)

    async def signal_workflow(self, input: SignalWorkflowInput) -> None:  # noqa: A002 - as above
        with self._span("SignalWorkflow", input.signal, input.handle.workflow_id):
            await super().signal_workflow(input)

    async def query_workflow(self, input: QueryWorkflowInput) -> Any:  # noqa: A002 - as above
        with self._span("QueryWorkflow", input.query, input.handle.workflow_id):
            return await super().query_workflow(input)

    async def start_workflow_update(self, input: StartWorkflowUpdateInput) -> WorkflowUpdateHandle[Any]:  # noqa: A002 - as above
        with self._span("StartWorkflowUpdate", input.update, input.handle.workflow_id):
            return await super().start_workflow_update(input)

    async def start_update_with_start_workflow(
        self,
        input: StartWorkflowUpdateWithStartInput,  # noqa: A002 - as above
    ) -> WorkflowUpdateHandle[Any]:
        workflow_id = str(input.start_workflow_operation.options.get("id"))
        with self._span("StartUpdateWithStartWorkflow", input.update, workflow_id):
            propagate.inject(input.headers)
            return await super().start_update_with_start_workflow(input)


class _Activity(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, tracer: Any) -> None:  # noqa: A002 - as above
        super().__init__(next)
        self._tracer = tracer

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - as above
        info = activity.info()
        attributes = {WORKFLOW_ID: info.workflow_id, RUN_ID: info.run_id, ATTEMPT: info.attempt}
        with self._tracer.start_as_current_span(
            f"RunActivity:{info.activity_type}",
            context=propagate.extract(dict(input.headers)),
            kind=trace.SpanKind.SERVER,
            attributes=attributes,
            set_status_on_exception=False,
        ) as span:
            try:
                return await super().execute_activity(input)
            except Exception as error:
                # What its author has declared to be part of the normal course is no error to those who watch.
                if not (isinstance(error, ApplicationError) and error.category is ApplicationErrorCategory.BENIGN):
                    span.set_status(trace.Status(trace.StatusCode.ERROR, f"{type(error).__name__}: {error}"))
                raise


class _Workflow(WorkflowInboundInterceptor):
    """tracing: whose it is. context: of the run's span, the parent of what it asks for."""

    tracing: TracingInterceptor

    def __init__(self, next: WorkflowInboundInterceptor) -> None:  # noqa: A002 - as above
        super().__init__(next)
        self.context: Any = None
        self._count = 0

    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        super().init(_Outbound(outbound, self))

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:  # noqa: A002 - as above
        with workflow.unsafe.guards_off():  # an SDK reads clocks and takes locks, which nothing here depends on
            above = propagate.extract(dict(input.headers))
            self.context = self.mark(f"RunWorkflow:{input.workflow_type}", above)
        return await super().execute_workflow(input)

    async def handle_signal(self, input: HandleSignalInput) -> None:  # noqa: A002 - as above
        with workflow.unsafe.guards_off():
            self.mark(f"HandleSignal:{input.signal}", self.context)
        await super().handle_signal(input)

    async def handle_update_handler(self, input: HandleUpdateInput) -> Any:  # noqa: A002 - as above
        with workflow.unsafe.guards_off():
            self.mark(f"HandleUpdate:{input.update}", self.context)
        return await super().handle_update_handler(input)

    def mark(self, name: str, above: Any) -> Any:
        """The context of a span below `above`; the span itself is made only where this has not been done before."""
        self._count += 1
        info = workflow.info()
        parent = trace.get_current_span(above).get_span_context()
        drawn = hashlib.sha256(f"{info.run_id} {self._count}".encode()).digest()
        span_id = int.from_bytes(drawn[:8]) or 1
        trace_id = parent.trace_id if parent.is_valid else int.from_bytes(drawn[8:24]) or 1
        if not workflow.unsafe.is_replaying():
            attributes = {WORKFLOW_ID: info.workflow_id, RUN_ID: info.run_id}
            self.tracing.instant(name, above, span_id, trace_id, attributes)
        flags = parent.trace_flags if parent.is_valid else trace.TraceFlags(trace.TraceFlags.SAMPLED)
        own = trace.SpanContext(trace_id, span_id, is_remote=True, trace_flags=flags, trace_state=parent.trace_state)
        return trace.set_span_in_context(trace.NonRecordingSpan(own), above)


class _Outbound(WorkflowOutboundInterceptor):
    def __init__(self, next: WorkflowOutboundInterceptor, inbound: _Workflow) -> None:  # noqa: A002 - as above
        super().__init__(next)
        self._inbound = inbound

    def start_activity(self, input: StartActivityInput) -> ActivityHandle[Any]:  # noqa: A002 - as above
        with workflow.unsafe.guards_off():
            propagate.inject(
                input.headers, self._inbound.mark(f"StartActivity:{input.activity}", self._inbound.context)
            )
        return super().start_activity(input)
