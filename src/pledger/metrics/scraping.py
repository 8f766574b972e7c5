"""What is read when somebody scrapes: how workers stand, and the ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pledger.metrics import families

if TYPE_CHECKING:
    from pledger.engine.census import Census
    from pledger.metrics.ledger import Watched
    from pledger.metrics.recording import WorkerRecording

#: Task queues that the ledger is told of at most, those with most in them: names that are made up for each run must not
#: become as many series.
QUEUES_MAX: Final = 100

#: The same of queues, types and states of open runs.
GROUPS_MAX: Final = 500

#: A task queue, how many wait in it, and since when the oldest of them.
_Backlog: TypeAlias = tuple[str, int, int | None]
#: One sample: the name of its family, its labels, its value.
_Sample: TypeAlias = tuple[str, tuple[str, ...], float]


class Scrape(Collector):
    """workers, ledgers: those that are there now."""

    def __init__(
        self,
        prefix: str,
        workers: Callable[[], Sequence[WorkerRecording]],
        ledgers: Callable[[], Sequence[Watched]],
    ) -> None:
        self._prefix = prefix
        self._workers = workers
        self._ledgers = ledgers

    def describe(self) -> Iterable[Metric]:
        """For a registry that wants to know the names and must not have the ledger asked for them."""
        return self._families({})

    def collect(self) -> Iterable[Metric]:
        found: Counter[tuple[str, tuple[str, ...]]] = Counter()
        for name, labels, value in self._standing():
            found[name, labels] += value  # type: ignore[assignment] # two workers of a queue tell one figure
        samples: dict[tuple[str, tuple[str, ...]], float] = dict(found)
        for watched in self._ledgers():
            census = watched.look()
            samples["ledger_up", (watched.namespace,)] = float(census is not None)
            if census is not None:
                samples |= {(name, labels): value for name, labels, value in ledger_samples(watched.namespace, census)}
        return self._families(samples)

    def _families(self, samples: Mapping[tuple[str, tuple[str, ...]], float]) -> Iterable[GaugeMetricFamily]:
        found = families.gauges((*families.STANDING, *families.LEDGER), self._prefix)
        for (name, labels), value in samples.items():
            found[name].add_metric(list(labels), value)
        return found.values()

    def _standing(self) -> Iterator[_Sample]:
        for worker in self._workers():
            if worker.standing is None:
                continue
            standing, place = worker.standing(), worker.series.labels
            yield "sticky_cache_size", place, standing.cached
            for slots in standing.slots:
                # A claim that is on its way keeps slots for what it may bring: for that moment there are none.
                free = max(0, slots.free)
                yield "worker_task_slots_available", (*place, slots.worker_type), free
                yield "worker_task_slots_used", (*place, slots.worker_type), slots.most - free


def ledger_samples(namespace: str, census: Census) -> Iterator[_Sample]:
    waiting = [(each.task_queue, each.queued, each.oldest_ms) for each in census.queues]
    yield from _backlogs(namespace, "Activity", waiting, census.now_ms)
    yield from _backlogs(namespace, "Workflow", _ready(census), census.now_ms)
    for row in sorted(census.runs, key=lambda each: (-each.count, each.place()))[:GROUPS_MAX]:
        yield "open_workflows", (namespace, row.task_queue, row.workflow_type, row.state), row.count
    for (task_queue, is_live), count in census.sessions.items():
        yield "worker_sessions", (namespace, task_queue, "live" if is_live else "dead"), count
    for kind, count in census.pauses.items():
        yield "paused", (namespace, kind), count


def _ready(census: Census) -> list[_Backlog]:
    """Of each queue with open runs, those of them that wait for a worker."""
    found: dict[str, tuple[int, int | None]] = dict.fromkeys((each.task_queue for each in census.runs), (0, None))
    for row in census.runs:
        if row.state == "ready":
            count, oldest_ms = found[row.task_queue]
            known = [each for each in (oldest_ms, row.oldest_ms) if each is not None]
            found[row.task_queue] = count + row.count, min(known, default=None)
    return [(task_queue, *each) for task_queue, each in found.items()]


def _backlogs(namespace: str, task_type: str, waiting: Sequence[_Backlog], now_ms: int) -> Iterator[_Sample]:
    for task_queue, count, oldest_ms in sorted(waiting, key=lambda each: (-each[1], each[0]))[:QUEUES_MAX]:
        labels = (namespace, task_queue, task_type)
        yield "approximate_backlog_count", labels, count
        yield "approximate_backlog_age", labels, 0 if oldest_ms is None else max(0, now_ms - oldest_ms) / 1000
