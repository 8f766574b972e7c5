"""Cases run on every store: the `ledger` of the engine's tests where no time passes, `virtual` where it does."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pledger.testing import Environment, environment
from tests.cases.virtual import InAFile
from tests.conformance.harness import Ledger as PortLedger
from tests.conformance.harness import memory_ledger, sqlite_ledger
from tests.engine.conftest import lasting, place, pytest_pyfunc_call
from tests.engine.harness import Ledger

__all__ = ["pytest_pyfunc_call"]


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    """That of the engine's tests, but a worker that does not die keeps its lease on the busiest machine: attempts are
    counted here."""
    with place(request.param, tmp_path) as url:
        for opened in lasting(url):
            opened.worker_lease = timedelta(minutes=1)
            yield opened


@pytest.fixture(params=["memory", "sqlite"])
def virtual(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Environment]]:
    """Call it for an environment: arguments as in `pledger.testing.environment`.

    Each is closed when the test ends, and then every run is replayed against its code.
    """
    with ExitStack() as opened:

        def open_one(**options: Any) -> Environment:
            setup = environment(**options)
            if request.param == "sqlite":
                setup.new_ledger = functools.partial(InAFile, tmp_path / "ledger.db")
            return opened.enter_context(setup)

        yield open_one


@pytest.fixture(params=[memory_ledger, sqlite_ledger], ids=["memory", "sqlite"])
def port_ledger(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PortLedger]:
    """The store itself, without an engine; its clock is the test's."""
    opened = request.param(tmp_path, monkeypatch)
    yield opened
    asyncio.run(opened.close())
