"""What a proof found, stage by stage, and the JSON file that keeps it."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import msgspec


class Violation(msgspec.Struct, frozen=True):
    """what: the promise that was broken, in words. again: the command that shows it once more."""

    what: str
    again: str


class Simulated(msgspec.Struct, frozen=True):
    """Seeds over one kind of store. hits: how often each fault happened. missed: those that never did, although enough
    seeds ran for each to happen."""

    store: str
    first: int
    seeds: int
    hours: float
    steps: int
    runs: int
    hits: dict[str, int]
    missed: list[str]


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
