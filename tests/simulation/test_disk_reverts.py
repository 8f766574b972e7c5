"""Revert tests over the real SQLite store: with what it does about the disk taken out, the simulation finds it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from pledger.engine.loading import HistoryReader
from pledger.history.transition import StoredTransition, Transition, checksum
from pledger.store.sqlite.log import Log
from pledger.store.sqlite.writer import Writer
from pledger.testing import Faults, SimulationFailedError
from tests.simulation.running import simulate

#: Within so many seeds it must be found.
SEEDS = 100


def no_fsync(patch: pytest.MonkeyPatch) -> None:
    """synchronous=OFF."""
    rule = Writer._begin

    def begin(self: Writer, wait_ms: int, *, durable: bool) -> None:
        self._durable = durable  # or it would be set to what it ought to be
        self._cursor.execute("PRAGMA synchronous = OFF", ())
        rule(self, wait_ms, durable=durable)

    patch.setattr(Writer, "_begin", begin)


def commits_do_not_wait_for_the_disk(patch: pytest.MonkeyPatch) -> None:
    """synchronous=NORMAL."""
    rule = Writer.run

    def run(self: Writer, job: Any, *, durable: bool, **others: Any) -> Any:
        return rule(self, job, durable=False, **others)

    patch.setattr(Writer, "run", run)


def a_log_is_not_mended(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Log, "mend", lambda self: None)


def a_log_is_trusted_at_first(patch: pytest.MonkeyPatch) -> None:
    rule = Log.__init__

    def init(self: Log, *args: Any) -> None:
        rule(self, *args)
        self.is_doubtful = False

    patch.setattr(Log, "__init__", init)


def checksums_are_ignored(patch: pytest.MonkeyPatch) -> None:
    rule = HistoryReader.take

    def take(self: HistoryReader, row: StoredTransition) -> Transition:
        return rule(self, replace(row, checksum=checksum(self.head, self.last_event + 1, row.body)))

    patch.setattr(HistoryReader, "take", take)
    patch.setattr(HistoryReader, "check_end", lambda self, row: setattr(self, "head", row.head))


@dataclass(frozen=True)
class Revert:
    """take_out: patches the defence away. faults: what it takes to need it. broken: one of these promises."""

    take_out: Callable[[pytest.MonkeyPatch], None]
    broken: tuple[str, ...]
    faults: Faults


#: A claim of a task is acknowledged too: with it lost, an attempt begins a second time.
LOST = ("nothing acknowledged is lost", "attempts are counted")
#: What comes of damage that nobody sees: the code goes on with other facts, or falls over them.
DAMAGED = (
    "damage is found",
    "every open run has a waker",
    "told is true",
    "no run blocks",
    "the fold accepts it",
    "clients are not surprised",
)
POWER = Faults(power_loss=0.3)
FAILING = Faults(power_loss=0.3, disk_sync_error=0.1, kill=0.5)

REVERTS = [
    Revert(no_fsync, LOST, POWER),
    Revert(commits_do_not_wait_for_the_disk, LOST, POWER),
    Revert(a_log_is_not_mended, LOST, FAILING),
    Revert(a_log_is_trusted_at_first, LOST, FAILING),
    Revert(checksums_are_ignored, DAMAGED, Faults(bit_flip=0.5, kill=0.3, restart=0.3)),
]


@pytest.mark.parametrize("revert", REVERTS, ids=lambda revert: revert.take_out.__name__)
def test_a_missing_defence_is_found(revert: Revert, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        revert.take_out(patch)
        found_at, violations = first_violation(revert.faults)
    assert any(violation.startswith(revert.broken) for violation in violations), violations
    # With the defence in, the seed that found it holds.
    simulate(found_at, revert.faults, store="sqlite")


def first_violation(faults: Faults, **options: Any) -> tuple[int, list[str]]:
    for seed in range(SEEDS):
        try:
            simulate(seed, faults, store="sqlite", **options)
        except SimulationFailedError as error:
            return seed, error.violations
    pytest.fail(f"nothing was found in {SEEDS} seeds")


def test_less_durability_by_choice_loses_what_it_may() -> None:
    """durability="process": a power cut may take the last of what was acknowledged, and the simulation sees it."""
    _, violations = first_violation(POWER, durability="process")
    assert violations[0].startswith(LOST)


@pytest.mark.parametrize("seed", range(10))
def test_less_durability_survives_the_death_of_processes(seed: int) -> None:
    simulate(seed, Faults(kill=0.5, kill_in_write=0.01, disk_write_error=0.02), store="sqlite", durability="process")
