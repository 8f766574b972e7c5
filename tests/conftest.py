"""What a test run says at its end, summed up over all its processes.

What the simulations did: a fault that was never hit proves nothing. How many processes were killed. On which Pythons
golden histories replayed. And: what an engine writes in a test is read back at once.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from pledger.history import transition
from pledger.testing.faults import DISK_KINDS, KINDS, SERVER_KINDS
from tests import servers
from tests.faults.matrix import never_made

#: When so many workflows were killed at all their commits, there must have been so many kills.
CASES_FOR_ALL = 30
KILLS_MIN = 500


@dataclass
class Sums:
    """Of the simulations over one kind of store. kinds: the faults that may happen there; from `seeds_for_all` seeds on
    every one must have been hit."""

    store: str
    kinds: tuple[str, ...]
    seeds_for_all: int
    seeds: int = 0
    seconds: float = 0.0
    steps: int = 0
    hits: Counter[str] = field(default_factory=Counter)
    checked: Counter[str] = field(default_factory=Counter)

    @property
    def missed(self) -> list[str]:
        return [kind for kind in self.kinds if not self.hits[kind]] if self.seeds >= self.seeds_for_all else []

    def tell(self, reporter: pytest.TerminalReporter) -> None:
        hours = self.seconds / 3600
        reporter.section(f"simulation: {self.store}")
        reporter.line(f"{self.seeds:,} seeds, {hours:,.1f} simulated hours, {self.steps:,} steps. Faults hit:")
        for kind in self.kinds:
            reporter.line(f"  {kind:20}{self.hits[kind]:>10,}")
        if self.missed:
            reporter.line(f"NEVER HIT, so nothing is proven about: {', '.join(self.missed)}", red=True)


class Simulated:
    """The sums of the properties that `tests/simulation` records."""

    def __init__(self) -> None:
        self.stores = {
            "memory": Sums("memory", KINDS, 500),
            "sqlite": Sums("sqlite", KINDS + DISK_KINDS, 150),
            "postgres": Sums("postgres", KINDS + SERVER_KINDS, 150),
        }

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties if report.when == "call" else ():
            if name == "simulated" and isinstance(value, dict):
                sums = self.stores[value["store"]]
                sums.seeds += value["seeds"]
                sums.seconds += value["seconds"]
                sums.steps += int(value["steps"])
                sums.hits += Counter(value["hits"])
                sums.checked += Counter(value["checked"])

    @property
    def never_made(self) -> list[str]:
        """Checks that no seed has made, over any store; of so many seeds that each should have been."""
        sums = self.stores.values()
        enough = all(each.seeds >= each.seeds_for_all for each in sums)
        return never_made(each.checked for each in sums) if enough else []

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.never_made or any(sums.missed for sums in self.stores.values()):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for sums in self.stores.values():
            if sums.seeds:
                sums.tell(terminalreporter)
        if self.never_made:
            terminalreporter.line(f"NEVER CHECKED, so nothing is proven: {', '.join(self.never_made)}", red=True)


class Killed:
    """The sums of what `tests/crashes` records."""

    def __init__(self) -> None:
        self.sums: Counter[str] = Counter()

    @property
    def too_few(self) -> bool:
        return self.sums["cases"] >= CASES_FOR_ALL and self.sums["kills"] < KILLS_MIN

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties if report.when == "call" else ():
            if name == "killed" and isinstance(value, dict):
                self.sums += Counter(value)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.too_few:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.sums:
            return
        sums = self.sums
        terminalreporter.section("crash points")
        terminalreporter.line(
            f"{sums['kills']:,} kills of {sums['cases']} workflows, at every commit; {sums['second']:,} in the recovery"
        )
        if self.too_few:
            terminalreporter.line(f"TOO FEW: it must be {KILLS_MIN:,}", red=True)


class Pythons:
    """The versions that `tests/histories/test_golden.py` found."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self.found += [str(value) for name, value in report.user_properties if name == "replayed on"]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.found:
            terminalreporter.section("golden histories")
            terminalreporter.line(f"Replayed on every Python found here: {', '.join(sorted(self.found))}")


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: tests that wait for servers, processes and leases leave one of them idle."""
    return (os.cpu_count() or 1) + 1


def _read_back(encode: Callable[..., bytes]) -> Callable[..., bytes]:
    """Every transition that a test's engine writes must be readable: what a history cannot hold is refused before."""

    def checked(*parts: object, **flags: object) -> bytes:
        body = encode(*parts, **flags)
        transition.decode(body)
        return body

    return checked


def pytest_configure(config: pytest.Config) -> None:
    transition.encode_parts = _read_back(transition.encode_parts)
    if not hasattr(config, "workerinput"):  # the workers' reports arrive where the tests were started
        config.pluginmanager.register(Simulated(), "pledger-simulated")
        config.pluginmanager.register(Killed(), "pledger-killed")
        config.pluginmanager.register(Pythons(), "pledger-pythons")
        servers.begin()


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        servers.end()
