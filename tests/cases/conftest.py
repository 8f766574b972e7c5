"""Cases run on every store: the `ledger` of the engine's tests where no time passes, `virtual` where it does."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pledger.testing import Environment, environment
from tests.cases.virtual import InAFile
from tests.conformance.harness import Ledger as PortLedger
from tests.conformance.harness import memory_ledger, postgres_ledger, sqlite_ledger
from tests.engine.conftest import lasting, place
from tests.engine.harness import PATIENCE_S, Ledger


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test on a loop of its own, and close the stores that it has opened: they are of that loop."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    opened = pyfuncitem.funcargs.get("port_ledger")

    async def run() -> None:
        try:
            await asyncio.wait_for(pyfuncitem.obj(**arguments), PATIENCE_S)
        finally:
            if isinstance(opened, PortLedger):
                await opened.close()

    asyncio.run(run())
    return True


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


@pytest.fixture(params=[memory_ledger, sqlite_ledger, postgres_ledger], ids=["memory", "sqlite", "postgres"])
def port_ledger(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PortLedger:
    """The store itself, without an engine; its clock is the test's."""
    opened: PortLedger = request.param(tmp_path, monkeypatch)
    return opened
