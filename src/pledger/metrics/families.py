"""The metrics there are: one table, which the code, the page that explains them and its test go by.

Names are those of the field where the field has one, spelled as there. Labels are bounded: namespaces, task queues and
types come from code, ids are in none. Times are in seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily

Kind: TypeAlias = Literal["counter", "histogram", "gauge"]
Recorded: TypeAlias = Counter | Histogram

#: Of what a worker does in memory, and of commits; of what waits, runs and calls; of whole runs.
FAST: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
STEP: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0)
LONG: Final = (0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 1800.0, 3600.0, 10800.0, 86400.0, 604800.0)
MANY: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0)

_WORKER: Final = ("namespace", "task_queue")
_WORKFLOW: Final = (*_WORKER, "workflow_type")
_ACTIVITY: Final = (*_WORKER, "activity_type")
_REQUEST: Final = ("namespace", "operation")


class Family(NamedTuple):
    """One metric, by its name without prefix, unit and suffix. unit: part of the name."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    about: str
    unit: str = ""
    buckets: tuple[float, ...] = ()

    def exposed(self, prefix: str) -> str:
        """As a scrape has it. A histogram has it with `_bucket`, `_sum` and `_count`."""
        suffix = "_total" if self.kind == "counter" else ""
        return f"{prefix}{self.name}{'_' if self.unit else ''}{self.unit}{suffix}"


def _counter(name: str, labels: tuple[str, ...], about: str) -> Family:
    return Family(name, "counter", labels, about)


def _latency(name: str, labels: tuple[str, ...], about: str, buckets: tuple[float, ...]) -> Family:
    return Family(name, "histogram", labels, about, "seconds", buckets)


def _gauge(name: str, labels: tuple[str, ...], about: str, unit: str = "") -> Family:
    return Family(name, "gauge", labels, about, unit)


#: Told by workers, of what they do.
WORKERS: Final = (
    _counter("workflow_completed", _WORKFLOW, "Runs that completed."),
    _counter("workflow_failed", _WORKFLOW, "Runs that failed."),
    _counter("workflow_canceled", _WORKFLOW, "Runs that were cancelled."),
    _counter("workflow_continue_as_new", _WORKFLOW, "Runs that ended for a successor."),
    _counter("workflow_timed_out", _WORKFLOW, "Runs whose deadline passed."),
    _latency("workflow_endtoend_latency", _WORKFLOW, "From the start of a run to its end, however it ended.", LONG),
    _latency(
        "workflow_task_schedule_to_start_latency",
        _WORKFLOW,
        "From when there was something for a run's code until it went on: in the ledger, and then in the worker.",
        STEP,
    ),
    _latency("workflow_task_execution_latency", _WORKFLOW, "How long a run's code went on before it waited.", FAST),
    _latency("workflow_task_replay_latency", _WORKFLOW, "To read and replay a run that was not in memory.", FAST),
    _counter(
        "workflow_task_execution_failed",
        (*_WORKFLOW, "failure_reason"),
        "Times that code could not go on and its run was blocked, by the reason.",
    ),
    _counter("corrupted_signals", _WORKFLOW, "Signals that found no handler, or whose arguments did not fit it."),
    _counter("history_warning", _WORKFLOW, "Warnings that a history has used 25, 50 or 75 % of its bound."),
    _latency(
        "activity_schedule_to_start_latency", _ACTIVITY, "From when an attempt was due until its code began.", STEP
    ),
    _latency("activity_execution_latency", _ACTIVITY, "How long the code of an attempt took.", STEP),
    _latency(
        "activity_succeed_endtoend_latency",
        _ACTIVITY,
        "From when an activity was scheduled until it completed, over all attempts.",
        STEP,
    ),
    _counter("activity_execution_failed", (*_ACTIVITY, "failure_reason"), "Attempts that failed, by the reason."),
    _counter("activity_execution_cancelled", _ACTIVITY, "Attempts that ended as cancelled."),
    _counter("sticky_cache_hit", _WORKER, "Times that code went on whose run was in memory."),
    _counter("sticky_cache_miss", _WORKER, "Runs that had to be replayed to go on."),
    _counter("sticky_cache_total_forced_eviction", _WORKER, "Runs that left memory to make room for others."),
    _counter("worker_start", _WORKER, "Workers that began."),
    _counter("worker_lease_lost", _WORKER, "Leases that ran out under a worker that was alive."),
)
#: Told by workers when they are asked.
STANDING: Final = (
    _gauge("sticky_cache_size", _WORKER, "Runs in memory."),
    _gauge("worker_task_slots_available", (*_WORKER, "worker_type"), "Attempts that could begin now."),
    _gauge("worker_task_slots_used", (*_WORKER, "worker_type"), "Slots that are taken."),
)
#: Told by clients and the committer of a process.
CONNECTIONS: Final = (
    _counter("request", _REQUEST, "What a client has asked, whatever came of it."),
    _counter("request_failure", (*_REQUEST, "failure"), "What of that was refused or failed, by the error."),
    _latency("request_latency", _REQUEST, "How long an answer took.", FAST),
    _latency("store_commit_latency", ("namespace",), "How long a group commit took.", FAST),
    Family("store_commit_operations", "histogram", ("namespace",), "Operations of a group commit.", "", MANY),
    _counter("store_failure", ("namespace", "subject"), "Times that the ledger could not be reached, by what for."),
)
#: Of the ledger as a whole, which every process tells alike.
LEDGER: Final = (
    _gauge("ledger_up", ("namespace",), "1, or 0 while the ledger does not answer; then those below are not there."),
    _gauge(
        "approximate_backlog_count",
        (*_WORKER, "task_type"),
        "Activities that are due, and runs that have something to do, which wait for a worker.",
    ),
    _gauge("approximate_backlog_age", (*_WORKER, "task_type"), "How long the oldest of them has waited.", "seconds"),
    _gauge("open_workflows", (*_WORKFLOW, "state"), "Open runs, by what they are at."),
    _gauge("worker_sessions", (*_WORKER, "state"), "Workers that are alive, or dead and not taken over yet."),
    _gauge("paused", ("namespace", "kind"), "What is paused."),
)

ALL: Final = (*WORKERS, *STANDING, *CONNECTIONS, *LEDGER)


def recorded(registry: CollectorRegistry, prefix: str) -> dict[str, Recorded]:
    """Those that are counted as things happen, by name. Raises ValueError where the registry has one of that name."""
    return {each.name: _register(each, registry, prefix) for each in (*WORKERS, *CONNECTIONS)}


def _register(family: Family, registry: CollectorRegistry, prefix: str) -> Recorded:
    named: dict[str, Any] = {"name": prefix + family.name, "documentation": family.about, "registry": registry}
    named |= {"labelnames": family.labels, "unit": family.unit}
    if family.kind == "counter":
        return Counter(**named)
    return Histogram(**named, buckets=family.buckets)


def gauges(families: Sequence[Family], prefix: str) -> dict[str, GaugeMetricFamily]:
    """Empty ones, by name."""
    return {
        each.name: GaugeMetricFamily(prefix + each.name, each.about, labels=each.labels, unit=each.unit)
        for each in families
    }
