"""Spans of one order, from its start to its attempts, by the SDK of OpenTelemetry."""

# ruff: noqa: SIM117 - a worker stands in its client
from __future__ import annotations

from typing import Any

import pytest

from pledger import activity, connect, workflow
from pledger.client import Client
from pledger.errors import ApplicationError, ApplicationErrorCategory
from tests.engine.harness import Ledger, until, worker_process
from tests.engine.steps import AT_ONCE

sdk = pytest.importorskip("opentelemetry.sdk.trace")
export = pytest.importorskip("opentelemetry.sdk.trace.export")
memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
tracing = pytest.importorskip("pledger.tracing")

_RUN = "StartWorkflow:Order > RunWorkflow:Order"
_CHARGE = f"{_RUN} > StartActivity:charge"
_ATTEMPT = f"{_CHARGE} > RunActivity:charge"


class Spans:
    def __init__(self) -> None:
        self._exporter = memory.InMemorySpanExporter()
        provider = sdk.TracerProvider()
        provider.add_span_processor(export.SimpleSpanProcessor(self._exporter))
        self.tracer = provider.get_tracer("mine")
        self.interceptor = tracing.TracingInterceptor(provider.get_tracer("pledger"))

    def tree(self) -> list[str]:
        """Each span below its parent, by its name. All are of one trace."""
        spans = self._exporter.get_finished_spans()
        by_id = {each.context.span_id: each for each in spans}
        assert len(by_id) == len(spans), "each was made once"
        assert len({each.context.trace_id for each in spans}) == 1

        def path(span: Any) -> str:
            above = None if span.parent is None else by_id[span.parent.span_id]
            return span.name if above is None else f"{path(above)} > {span.name}"

        return sorted(path(each) for each in spans)

    def statuses(self, name: str) -> list[tuple[str, str | None]]:
        """Of the spans of a name, in the order of their ends, with what is said of it."""
        found = [each.status for each in self._exporter.get_finished_spans() if each.name == name]
        return [(status.status_code.name, status.description) for status in found]


def order_of(spans: Spans) -> tuple[Any, Any]:
    @activity.defn(retry_policy=AT_ONCE)
    async def charge(order: str) -> str:
        with spans.tracer.start_as_current_span("the bank"):
            if activity.info().attempt == 1:
                raise ConnectionError("not yet")
        return order

    @workflow.defn
    class Order:
        go = False

        @workflow.run
        async def run(self, order: str) -> str:
            first = await charge(order)
            await workflow.wait_condition(lambda: self.go)
            return first + await charge(order)

        @workflow.signal
        def go_on(self) -> None:
            self.go = True

    return Order, charge


async def until_charged(client: Client) -> None:
    async def is_charged() -> bool:
        return (await client.handle("order-1").describe()).state.activities_done == 1

    await until(is_charged)


async def test_a_trace_goes_over_headers_and_over_a_take_over(ledger: Ledger) -> None:
    """The worker that goes on makes no span again, and what it starts has the parents that it would have had."""
    spans = Spans()
    order, charge = order_of(spans)
    async with connect(ledger.url, interceptors=[spans.interceptor]) as client, ledger.connect() as plain:
        with worker_process(ledger, order, charge, interceptors=[spans.interceptor]) as dying:
            handle = await client.start_workflow(order, "o1", id="order-1")
            await until_charged(plain)
            dying.freeze()
            async with ledger.worker(client, order, charge):
                # Without interceptors: the span of the signal would be of a trace of its own.
                await plain.handle("order-1", workflow=order).signal(order.go_on)
                assert await handle.result() == "o1o1"
    assert spans.tree() == sorted(
        [
            *("StartWorkflow:Order", _RUN, f"{_RUN} > HandleSignal:go_on"),
            *[_CHARGE] * 2,
            *[_ATTEMPT] * 4,
            *[f"{_ATTEMPT} > the bank"] * 4,
        ]
    )


async def test_an_attempt_that_fails_as_is_expected_is_no_error(file_ledger: Ledger) -> None:
    spans = Spans()

    @activity.defn(retry_policy=AT_ONCE)
    async def poll() -> str:
        match activity.info().attempt:
            case 1:
                raise ConnectionError("refused")
            case 2:
                raise ApplicationError("not yet", category=ApplicationErrorCategory.BENIGN)
        return "there"

    @workflow.defn
    async def follow() -> str:
        return await poll()

    async with connect(file_ledger.url, interceptors=[spans.interceptor]) as client:
        async with file_ledger.worker(client, follow, poll):
            assert await client.execute_workflow(follow, id="follow-1") == "there"
    assert spans.statuses("RunActivity:poll") == [
        ("ERROR", "ConnectionError: refused"),
        ("UNSET", None),
        ("UNSET", None),
    ]


async def test_without_an_sdk_nothing_is_made_and_nothing_fails(file_ledger: Ledger) -> None:
    order, charge = order_of(Spans())
    async with connect(file_ledger.url, interceptors=[tracing.TracingInterceptor()]) as client:
        async with file_ledger.worker(client, order, charge):
            handle = await client.start_workflow(order, "o1", id="order-1")
            await handle.signal(order.go_on)
            assert await handle.result() == "o1o1"
