"""Real servers of each test's own, which it may treat as it likes."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from pledger.testing.postgres import PostgresServer, postgres_server
from tests import servers
from tests.outages.load import effects

PATIENCE_S = 90.0


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(asyncio.wait_for(pyfuncitem.obj(**arguments), PATIENCE_S))
    return True


@pytest.fixture
def place() -> Iterator[Path]:
    """Where servers may be. The outside has seen nothing yet."""
    effects.clear()
    with servers.directory() as place:
        yield place


@pytest.fixture
def server(place: Path) -> Iterator[PostgresServer]:
    with postgres_server(place / "primary", max_connections="20", fsync="off") as started:
        yield started
