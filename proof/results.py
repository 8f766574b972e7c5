"""What a proof found, stage by stage, and the JSON file that keeps it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

import msgspec


class Violation(msgspec.Struct, frozen=True):
    """what: the promise that was broken, in words. again: the command that shows it once more."""

    what: str
    again: str


class Simulated(msgspec.Struct, frozen=True):
    """Seeds over one kind of store. hits: how often each fault happened. missed: those that never did, although enough
    seeds ran for each to happen. checked: how often each check was made, by its name."""

    store: str
    first: int
    seeds: int
    hours: float
    steps: int
    runs: int
    hits: dict[str, int]
    missed: list[str]
    checked: dict[str, int] = {}

    def joined(self, other: Simulated) -> Simulated:
        """Both as one run: the other's seeds follow. Raises ValueError when they do not."""
        if other.first != self.first + self.seeds:
            raise ValueError(
                f"{self.store}: the seeds from {other.first} do not follow those up to {self.first + self.seeds - 1}"
            )
        hits = Counter(self.hits) + Counter(other.hits)
        return Simulated(
            self.store,
            self.first,
            self.seeds + other.seeds,
            self.hours + other.hours,
            self.steps + other.steps,
            self.runs + other.runs,
            dict(hits),
            [kind for kind in self.missed if not hits[kind]],
            dict(Counter(self.checked) + Counter(other.checked)),
        )


class Planted(msgspec.Struct, frozen=True):
    """A planted bug. seeds: how many it took to find it; None when all of them did not."""

    name: str
    store: str
    seeds: int | None
    violation: str


class Explored(msgspec.Struct, frozen=True):
    """A bounded model. guard: what was taken out, "" for the whole protocol. trace: steps to the violation."""

    model: str
    guard: str
    states: int
    depth: int
    trace: int | None


class Replayed(msgspec.Struct, frozen=True):
    """Golden histories on one interpreter, under each of so many environments."""

    python: str
    histories: int
    events: int
    environments: int


class Real(msgspec.Struct, frozen=True):
    """What real processes went through, in figures."""

    name: str
    figures: dict[str, int]


class Stage(msgspec.Struct):
    """seconds: how long it took. What it found is in the lists of its kind."""

    name: str
    seconds: float
    violations: list[Violation]
    simulated: list[Simulated] = []
    planted: list[Planted] = []
    explored: list[Explored] = []
    replayed: list[Replayed] = []
    real: list[Real] = []


class Proof(msgspec.Struct):
    started: datetime
    machine: dict[str, str]
    stages: list[Stage]

    @property
    def violations(self) -> list[Violation]:
        return [each for stage in self.stages for each in stage.violations]

    @property
    def seconds(self) -> float:
        return sum(stage.seconds for stage in self.stages)

    def write(self, file: Path) -> None:
        file.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=2))

    @classmethod
    def read(cls, file: Path) -> Proof:
        return msgspec.json.decode(file.read_bytes(), type=cls)


def merge(proofs: Iterable[Proof]) -> Proof:
    """Several runs of the same code on the same machine as one. Of a simulation the seeds are added up; of any other
    stage the newest counts. Raises ValueError when they do not fit together."""
    ordered = sorted(proofs, key=lambda proof: proof.started)
    first = ordered[0]
    if any(proof.machine != first.machine for proof in ordered):
        raise ValueError("these are of different machines, or of different code")
    stages: dict[str, Stage] = {}
    for stage in sorted((stage for proof in ordered for stage in proof.stages), key=_first_seed):
        earlier = stages.get(stage.name)
        stages[stage.name] = _joined(earlier, stage) if earlier is not None and stage.simulated else stage
    return Proof(first.started, first.machine, list(stages.values()))


def _first_seed(stage: Stage) -> int:
    return stage.simulated[0].first if stage.simulated else 0


def _joined(one: Stage, other: Stage) -> Stage:
    simulated = [each.joined(follows) for each, follows in zip(one.simulated, other.simulated, strict=True)]
    return Stage(one.name, one.seconds + other.seconds, [*one.violations, *other.violations], simulated)
