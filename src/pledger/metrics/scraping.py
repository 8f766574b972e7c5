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
    queues = sorted(census.queues, key=lambda each: (-each.queued, each.task_queue))[:QUEUES_MAX]
    for queue in queues:
        labels = (namespace, queue.task_queue, "Activity")
        yield "approximate_backlog_count", labels, queue.queued
        age_ms = 0 if queue.oldest_ms is None else max(0, census.now_ms - queue.oldest_ms)
        yield "approximate_backlog_age", labels, age_ms / 1000
    for (task_queue, is_live), count in census.sessions.items():
        yield "worker_sessions", (namespace, task_queue, "live" if is_live else "dead"), count
    for kind, count in census.pauses.items():
        yield "paused", (namespace, kind), count
