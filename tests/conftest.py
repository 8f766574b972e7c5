"""What a test run says at its end, summed up over all its processes.

What the simulations did: a fault that was never hit proves nothing. And on which Pythons the golden histories replayed.
"""

from __future__ import annotations

from collections import Counter

import pytest

from pledger.testing.faults import KINDS

#: From so many seeds on every kind of fault must have been hit.
SEEDS_FOR_ALL = 500


class Simulated:
    """The sums of the properties that `tests/simulation` records."""

    def __init__(self) -> None:
        self.seeds = 0
        self.seconds = 0.0
        self.steps = 0
        self.hits: Counter[str] = Counter()

    @property
    def missed(self) -> list[str]:
        return [kind for kind in KINDS if not self.hits[kind]] if self.seeds >= SEEDS_FOR_ALL else []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties if report.when == "call" else ():
            if name == "simulated" and isinstance(value, dict):
                self.seeds += value["seeds"]
                self.seconds += value["seconds"]
                self.steps += int(value["steps"])
                self.hits += Counter(value["hits"])

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.missed:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.seeds:
            return
        hours = self.seconds / 3600
        terminalreporter.section("simulation")
        terminalreporter.line(f"{self.seeds:,} seeds, {hours:,.1f} simulated hours, {self.steps:,} steps. Faults hit:")
        for kind in KINDS:
            terminalreporter.line(f"  {kind:20}{self.hits[kind]:>10,}")
        if self.missed:
            terminalreporter.line(f"NEVER HIT, so nothing is proven about: {', '.join(self.missed)}", red=True)


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


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # the workers' reports arrive where the tests were started
        config.pluginmanager.register(Simulated(), "pledger-simulated")
        config.pluginmanager.register(Pythons(), "pledger-pythons")
