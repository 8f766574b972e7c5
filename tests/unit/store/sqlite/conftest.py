"""A ledger in a file of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from pledger.store.sqlite import SqliteStore, open_sqlite
from tests.conformance.harness import Clock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(path: Path, clock: Clock) -> Iterator[SqliteStore]:
    store = open_sqlite(path, clock=clock, busy_timeout_ms=20)
    yield store
    asyncio.run(store.close())
