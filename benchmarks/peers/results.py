"""What a comparison found, and the JSON file that keeps it."""

from __future__ import annotations

import statistics
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.load import QUIET_CORES
from benchmarks.peers.catalogue import PEERS, SIZES, Compared, reference_of

#: What docs/benchmarks.md shows.
PUBLISHED: Final = Path(__file__).with_name("published.json")


class Measured(msgspec.Struct):
    """One workload of one engine. samples: values by key, one for each repeat that came to its end. failure: why there
    are no more, or None."""

    peer: str
    workload: str
    size: int
    samples: list[dict[str, float]] = []
    failure: str | None = None

    def values(self, key: str) -> list[float]:
        return [each[key] for each in self.samples if key in each]

    def median(self, key: str) -> float | None:
        """None as well when a repeat failed: what some repeats did is no result."""
        values = self.values(key)
        return statistics.median(values) if values and self.failure is None else None

    @property
    def other_cores(self) -> float:
        values = self.values("other_cores")
        return statistics.median(values) if values else 0.0

    @property
    def is_disturbed(self) -> bool:
        return self.other_cores > QUIET_CORES


class Terms(msgspec.Struct):
    """What an engine was measured as. per_step: what it asks of disk and database for a step, by key. counted: how
    that was found out, or why not. failure: why it is not there at all, or None."""

    peer: str
    versions: dict[str, str] = {}
    python: str = ""
    per_step: dict[str, float] = {}
    counted: str = ""
    failure: str | None = None


class Earlier(msgspec.Struct):
    """A run before this one, of which some workloads are still shown."""

    started: datetime
    repeats: int
    commit: str
    workloads: list[str]


class Comparison(msgspec.Struct):
    """earlier: where the workloads come from that this run has not measured."""

    started: datetime
    quick: bool
    repeats: int
    machine: dict[str, str]
    terms: list[Terms]
    measured: list[Measured]
    earlier: list[Earlier] = []

    def of(self, peer: str, workload: str) -> Measured | None:
        return next((each for each in self.measured if (each.peer, each.workload) == (peer, workload)), None)

    def median(self, peer: str, figure: Compared) -> float | None:
        measured = self.of(peer, figure.workload)
        return None if measured is None else measured.median(figure.key)

    def times_worse(self, peer: str, figure: Compared) -> float | None:
        """Than Pledger on the same kind of store; on the other one where it was not measured on that."""
        value = self.median(peer, figure)
        reference = self.median(reference_of(peer), figure)
        reference = self.median(next(iter(PEERS)), figure) if reference is None else reference
        return None if value is None or reference is None else figure.times_worse(value, reference)

    @property
    def workloads(self) -> list[str]:
        return list(dict.fromkeys(each.workload for each in self.measured))

    def over(self, other: Comparison) -> Comparison:
        """This run, and of another one, before it, the workloads that this one has not measured: what is compared was
        measured in one run."""
        kept = [each for each in other.measured if each.workload not in self.workloads]
        older = {workload for run in other.earlier for workload in run.workloads}
        own = [workload for workload in other.workloads if workload not in older]
        runs = [*other.earlier, Earlier(other.started, other.repeats, other.machine.get("commit", ""), own)]
        for run in runs:
            run.workloads = [workload for workload in run.workloads if workload not in self.workloads]
        terms = {each.peer: each for each in (*other.terms, *self.terms)}
        order, peers = list(SIZES), list(PEERS)
        measured = sorted(
            (*kept, *self.measured), key=lambda each: (order.index(each.workload), peers.index(each.peer))
        )
        return Comparison(
            self.started,
            self.quick,
            self.repeats,
            self.machine,
            [terms[name] for name in peers if name in terms],
            measured,
            [run for run in runs if run.workloads],
        )

    def write(self, file: Path) -> None:
        file.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=2))

    @classmethod
    def read(cls, file: Path) -> Comparison:
        return msgspec.json.decode(file.read_bytes(), type=cls)
