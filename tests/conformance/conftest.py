"""Every test of this folder runs on every store."""

from __future__ import annotations

from pathlib import Path

import pytest

from pledger.engine.port.verbs import Store
from tests.conformance.harness import LEDGERS, Clock, Ledger, run_async_test


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return run_async_test(pyfuncitem)


@pytest.fixture(params=LEDGERS)
def ledger(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    return LEDGERS[request.param](tmp_path, monkeypatch)


@pytest.fixture
def clock(ledger: Ledger) -> Clock:
    return ledger.clock


@pytest.fixture
def store(ledger: Ledger) -> Store:
    return ledger.open()
