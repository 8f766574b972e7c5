"""URLs: which store they name, and what is said of those that name none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pledger.engine.port.filters import EVERY
from pledger.errors import UsageError
from pledger.store import has_ledger, open_store
from pledger.store.memory import MemoryStore
from tests import servers
from tests.conformance.harness import ownerless_run, sqlite_of


@pytest.mark.parametrize(
    "url",
    [
        "",
        "orders.db",
        "memory:",
        "memory://x?a=1",
        "sqlite:",
        "sqlite://",
        "sqlite:///",
        "sqlite://orders.db",
        "sqlite:///orders.db?mode=ro",
        "mysql://localhost/orders",
        "postgresql:orders",
    ],
)
async def test_a_bad_url_is_answered_with_the_valid_forms(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        await open_store(url)
    assert repr(url) in str(caught.value)
    for form in ("memory://", "sqlite:///orders.db", "sqlite:////", "postgresql://"):
        assert form in str(caught.value)


async def test_an_unknown_durability() -> None:
    with pytest.raises(UsageError, match="'power' or 'process'"):
        await open_store("memory://", durability="fast")


async def test_relative_and_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    relative = await open_store("sqlite:///orders.db")
    absolute = await open_store(f"sqlite:///{tmp_path}/orders.db")
    run = await ownerless_run(relative)
    assert await absolute.read_run(run.run_key) == run
    assert (await relative.describe())["path"] == str(tmp_path / "orders.db")
    await relative.close()
    await absolute.close()


async def test_durability_is_the_handles_own(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/orders.db"
    power, process = await open_store(url), await open_store(url, durability="process")
    assert (await power.describe())["synchronous"] == "FULL"
    assert (await process.describe())["synchronous"] == "NORMAL"
    connection = sqlite_of(power)._database.writer.connection
    await ownerless_run(power, "1")
    assert connection.pragma("synchronous") == 2
    await ownerless_run(process, "2")
    assert connection.pragma("synchronous") == 1
    await ownerless_run(power, "3")
    assert connection.pragma("synchronous") == 2
    await power.close()
    await process.close()


async def test_memory_ledgers_are_shared_by_name_while_one_is_open() -> None:
    one, two, other = await open_store("memory://a"), await open_store("memory://a"), await open_store("memory://b")
    run = await ownerless_run(one)
    await one.close()
    assert await two.read_run(run.run_key) == run
    assert await other.count_runs("default", EVERY) == 0
    await two.close()
    fresh = await open_store("memory://a")
    assert await fresh.count_runs("default", EVERY) == 0
    await fresh.close()
    await other.close()


async def test_nameless_memory_ledgers_are_private() -> None:
    one, two = await open_store("memory://"), await open_store("memory://")
    await ownerless_run(one)
    assert await two.count_runs("default", EVERY) == 0


async def test_a_named_memory_ledger_outlives_a_kill() -> None:
    store = await open_store("memory://crash")
    run = await ownerless_run(store)
    assert isinstance(store, MemoryStore)
    store.kill()
    again = await open_store("memory://crash")
    assert await again.read_run(run.run_key) == run
    await again.close()


def test_importing_the_stores_imports_no_database() -> None:
    code = "import sys, pledger.store; assert not {'apsw', 'sqlite3'} & set(sys.modules), 'a database was imported'"
    subprocess.run([sys.executable, "-c", code], check=True)


async def test_whether_there_is_a_ledger(tmp_path: Path) -> None:
    with servers.schema() as served:
        for url in (f"sqlite:///{tmp_path}/ledger.db", served):
            assert not await has_ledger(url)
            assert not await has_ledger(url)  # to ask makes none
            store = await open_store(url)
            await store.close()
            assert await has_ledger(url)
    assert not await has_ledger("memory://")
    assert not await has_ledger("sqlite:///")


async def test_postgresql_without_its_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pledger.store.postgres", None)
    with pytest.raises(UsageError, match=r"pip install 'pledger\[postgres\]'"):
        await open_store("postgresql://localhost/orders")
