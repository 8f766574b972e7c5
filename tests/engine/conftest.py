"""Every test of this folder runs on every store, and every history that it leaves is replayed when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from pledger import connect
from tests import servers
from tests.engine.harness import PATIENCE_S, Ledger
from tests.engine.shop import Shop, table_beside


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test on a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(asyncio.wait_for(pyfuncitem.obj(**arguments), PATIENCE_S))
    return True


def lasting(url: str) -> Iterator[Ledger]:
    """The ledger, open throughout: one in memory is gone with its last handle."""
    ledger = Ledger(url)
    keeper = connect(url)
    with asyncio.Runner() as runner:
        runner.run(keeper.__aenter__())
        try:
            yield ledger
            runner.run(ledger.check_everything())
        finally:
            runner.run(keeper.__aexit__(None, None, None))


@contextlib.contextmanager
def place(store: str, directory: Path) -> Iterator[str]:
    """The URL of an empty ledger."""
    if store == "postgres":
        with servers.schema() as url:
            yield url
    else:
        yield f"memory://{directory}" if store == "memory" else f"sqlite:///{directory}/ledger.db"


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    with place(request.param, tmp_path) as url:
        yield from lasting(url)


@pytest.fixture
def memory_ledger(tmp_path: Path) -> Iterator[Ledger]:
    """One in memory, for what does not depend on the store."""
    yield from lasting(f"memory://{tmp_path}")


@pytest.fixture
def file_ledger(tmp_path: Path) -> Iterator[Ledger]:
    """One in a file, for what only a file can show."""
    yield from lasting(f"sqlite:///{tmp_path}/ledger.db")


# With a user's table beside it ----------------------------------------------------------------------------------------


def open_shop(store: str, directory: Path) -> Iterator[Shop]:
    with place(store, directory) as url:
        for ledger in lasting(url):
            with table_beside(ledger) as shop:
                yield shop


@pytest.fixture(params=["sqlite", "postgres"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    yield from open_shop(request.param, tmp_path)


@pytest.fixture
def postgres_shop(tmp_path: Path) -> Iterator[Shop]:
    yield from open_shop("postgres", tmp_path)


@pytest.fixture
def sqlite_shop(tmp_path: Path) -> Iterator[Shop]:
    yield from open_shop("sqlite", tmp_path)
