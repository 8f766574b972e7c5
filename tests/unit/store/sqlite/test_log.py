"""What is acknowledged after a sync that failed survives a power cut, although the system lost what it was to write."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pledger.engine.port.filters import EVERY
from pledger.errors import StoreUnavailableError
from pledger.store.sqlite import SqliteStore, open_sqlite
from pledger.store.sqlite.host import Host
from pledger.store.sqlite.log import Log
from pledger.testing.disk import Disk
from pledger.testing.disk_vfs import DiskVfs, Failure, Step
from tests.conformance.harness import claim, open_session, start


@dataclass
class Syncs:
    """One process's. failing: how many of its next syncs fail, with what they were to write lost."""

    failing: int = 0

    def meet(self, step: Step, name: str) -> Failure | None:
        if step != "sync" or not self.failing:
            return None
        self.failing -= 1
        return "lost"

    def draw(self) -> float:
        return 0.0


@dataclass
class Machine:
    path: Path
    disk: Disk = field(default_factory=Disk)
    running: list[tuple[DiskVfs, SqliteStore]] = field(default_factory=list)

    def open(self, syncs: Syncs | None = None) -> SqliteStore:
        vfs = DiskVfs(self.disk, syncs or Syncs())
        store = open_sqlite(self.path, host=Host(vfs=vfs.name, threads=False))
        self.running.append((vfs, store))
        return store

    async def kill(self) -> None:
        """All processes."""
        for vfs, store in self.running:
            vfs.is_dead = True
            await store.close()
            vfs.unregister()
        self.running.clear()

    async def cut_power(self) -> None:
        """Of what was not synced nothing stays."""
        await self.kill()
        for file in self.disk.files.values():
            file.lose_power(random.Random(0), kept=0.0)


@pytest.fixture
def machine(path: Path) -> Iterator[Machine]:
    made = Machine(path)
    yield made
    asyncio.run(made.kill())


async def commit(store: SqliteStore, workflow_id: str) -> bool:
    """Whether it was acknowledged."""
    try:
        await store.commit([start(workflow_id)])
    except StoreUnavailableError:
        return False
    return True


async def ids(store: SqliteStore) -> set[str]:
    return {row.workflow_id for row in await store.list_runs("default", EVERY, 100)}


async def lose_what_did_not_wait(machine: Machine, store: SqliteStore, syncs: Syncs) -> None:
    """A commit that does not wait for the disk, then one that does and fails. Whether that one comes through after all
    is open: whoever hears of an error does not know."""
    assert await commit(store, "first")
    await open_session(store)
    syncs.failing = 1
    assert not await commit(store, "refused")


async def test_the_same_process_mends_the_log(machine: Machine) -> None:
    syncs = Syncs()
    store = machine.open(syncs)
    await lose_what_did_not_wait(machine, store, syncs)
    assert await commit(store, "second")
    await machine.cut_power()
    assert await ids(machine.open()) >= {"first", "second"}


async def test_another_process_that_was_there_mends_the_log(machine: Machine) -> None:
    syncs = Syncs()
    store, other = machine.open(syncs), machine.open()
    assert await commit(other, "zeroth")
    await lose_what_did_not_wait(machine, store, syncs)
    assert not await commit(other, "refused too")  # it is told of the failure, too
    assert await commit(other, "second")
    await machine.cut_power()
    assert await ids(machine.open()) >= {"zeroth", "first", "second"}


async def test_another_process_that_comes_later_mends_the_log(machine: Machine) -> None:
    syncs = Syncs()
    store = machine.open(syncs)
    await lose_what_did_not_wait(machine, store, syncs)
    await machine.kill()
    assert await commit(machine.open(), "second")
    await machine.cut_power()
    assert await ids(machine.open()) >= {"first", "second"}


async def test_while_it_cannot_be_mended_nothing_is_acknowledged(machine: Machine) -> None:
    syncs = Syncs()
    store = machine.open(syncs)
    await lose_what_did_not_wait(machine, store, syncs)
    syncs.failing = 2
    assert not await commit(store, "refused again")
    assert not await commit(store, "and again")
    assert not await commit(store, "told of the failures")
    assert await commit(store, "second")
    await machine.cut_power()
    assert await ids(machine.open()) >= {"first", "second"}


async def test_a_log_in_doubt_is_not_copied_into_the_database(machine: Machine) -> None:
    syncs = Syncs()
    store = machine.open(syncs)
    await lose_what_did_not_wait(machine, store, syncs)
    before = bytes(machine.disk.files[str(machine.path)].data)
    syncs.failing = 1
    store._database.rest()
    assert machine.disk.files[str(machine.path)].data == before
    syncs.failing = 1
    machine.running.clear()
    await store.close()
    assert machine.disk.files[str(machine.path)].data == before
    assert await ids(machine.open()) >= {"first"}


async def test_a_log_that_is_mended_is_copied(machine: Machine) -> None:
    syncs = Syncs()
    store = machine.open(syncs)
    await lose_what_did_not_wait(machine, store, syncs)
    store._database.rest()
    await machine.cut_power()
    assert await ids(machine.open()) >= {"first"}


async def test_without_the_mending_what_was_acknowledged_is_lost(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The revert test of all of the above."""
    monkeypatch.setattr(Log, "mend", lambda self: None)
    syncs = Syncs()
    store = machine.open(syncs)
    await lose_what_did_not_wait(machine, store, syncs)
    assert await commit(store, "second")
    await machine.cut_power()
    assert "second" not in await ids(machine.open())


async def test_a_checkpoint_of_a_log_in_doubt_would_damage_the_database(machine: Machine) -> None:
    """What comes back of the log is older than the database, and would be applied to it: rows without their index."""
    syncs = Syncs()
    store = machine.open(syncs)
    assert await commit(store, "first")
    session = await open_session(store)
    assert len(await claim(store, session)) == 1
    syncs.failing = 1
    assert not await commit(store, "refused")
    store._database.rest()
    await machine.cut_power()
    connection = machine.open()._database.writer.connection
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("SELECT owner FROM pledger_run WHERE run_key = 1").fetchall() == [(session,)]
