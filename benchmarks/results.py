"""What a run of the benchmarks found, and the JSON file that keeps it."""

from __future__ import annotations

import statistics
from datetime import datetime
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from benchmarks.figures import Figure, Verdict
from benchmarks.ground import StoreName
from benchmarks.load import QUIET_CORES

#: Units of figures that divide one time by another.
_RATIOS: Final = ("commits", "times")


class Sample(msgspec.Struct, frozen=True, tag="sample"):
    """One repeat. values: by the key of the figure. steps: in the measured block. commit_ms, fsync_ms: what the disk
    took, around it. other_cores: used by others during it. runs, events: replayed afterwards."""

    values: dict[str, float]
    steps: int
    commit_ms: float
    fsync_ms: float
    other_cores: float | None
    runs: int
    events: int


class Said(msgspec.Struct, frozen=True, tag="said"):
    """What a repeat is at."""

    text: str


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """A repeat that did not hold, or broke."""

    text: str


Message: TypeAlias = Sample | Said | Failed


class Measured(msgspec.Struct):
    """One workload. failure: why it does not count, or None."""

    workload: str
    samples: list[Sample]
    failure: str | None = None

    def values(self, key: str) -> list[float]:
        return [each.values[key] for each in self.samples if key in each.values]

    def in_commits(self, key: str) -> float:
        """A time in durable commits, each repeat by those that were measured around it."""
        return statistics.median(each.values[key] / each.commit_ms for each in self.samples if key in each.values)

    @property
    def other_cores(self) -> float:
        """The median over the repeats; 0 where the system does not tell."""
        return statistics.median(each.other_cores or 0.0 for each in self.samples)

    @property
    def is_disturbed(self) -> bool:
        return bool(self.samples) and self.other_cores > QUIET_CORES

    def verdict(self, figure: Figure) -> Verdict:
        """Whether the target is met. A ratio of two times is not judged on a busy machine: both wait for their turn on
        the processor, and whichever waits more decides. Other figures only get worse, so that a target which is met
        there is met."""
        if self.is_disturbed and figure.unit in _RATIOS:
            return "disturbed"
        return figure.verdict(self.values(figure.key))


class Calls(msgspec.Struct, frozen=True):
    """Function calls per step, counted. baseline: what they were when last written down for this Python, or None."""

    workload: str
    per_step: float
    baseline: float | None


class Results(msgspec.Struct):
    """quick: whether sizes were a fraction of what the targets are for. store: where the ledgers lay."""

    started: datetime
    quick: bool
    machine: dict[str, str]
    measured: list[Measured]
    calls: list[Calls]
    store: StoreName = "sqlite"

    def write(self, file: Path) -> None:
        file.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=2))

    @classmethod
    def read(cls, file: Path) -> Results:
        return msgspec.json.decode(file.read_bytes(), type=cls)
