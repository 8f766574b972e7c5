"""What people remove by hand, and the archives that it goes to."""

from __future__ import annotations

import asyncio
import gzip
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from pledger import Client, workflow
from pledger.cli import main
from pledger.client import History, WorkflowHandle
from pledger.errors import NoLongerKeptError, StoreUnavailableError, UsageError
from pledger.ops import retention
from pledger.ops.archive import Archive, archived, read_archive
from pledger.testing import replay
from tests.engine.harness import Ledger

NOW = timedelta(0)


@workflow.defn
async def greet(name: str) -> str:
    await asyncio.sleep(0.001)
    return f"hello {name}"


@workflow.defn
class Waits:
    @workflow.run
    async def run(self) -> None:
        await asyncio.Event().wait()

    @workflow.signal
    def go(self, name: str) -> None: ...


async def finished(client: Client, count: int) -> list[WorkflowHandle[Any]]:
    handles = [await client.start_workflow(greet, f"Ada {n}", id=f"order-{n}") for n in range(count)]
    await asyncio.gather(*(handle.result() for handle in handles))
    await asyncio.sleep(0.002)  # the ledger's clock counts milliseconds
    return handles


async def is_kept(handle: WorkflowHandle[Any]) -> bool:
    try:
        await handle.history()
    except NoLongerKeptError:
        return False
    return True


async def test_what_may_go_is_told_and_then_removed(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "PAGE", 7)
    monkeypatch.setattr(retention, "CHAINS_MAX", 3)
    async with ledger.connect() as client, ledger.worker(client, greet, Waits):
        handles = await finished(client, 20)
        waits = await client.start_workflow(Waits, id="waits")
        assert (await retention.what_may_go(client, timedelta(days=1))).chains == 0
        told = await retention.what_may_go(client, NOW)
        assert (told.chains, told.by_type, told.runs) == (20, {"greet": 20}, 0)
        assert all([await is_kept(each) for each in handles])
        assert (await retention.what_may_go(client, NOW, ["Waits"])).chains == 0
        seen: list[int] = []
        removed = await retention.prune(client, NOW, progress=lambda: seen.append(1))
        assert (removed.chains, removed.runs, removed.by_type, len(seen)) == (20, 20, {"greet": 20}, 20)
        assert not any([await is_kept(each) for each in handles])
        assert await is_kept(waits)
        again = await client.start_workflow(greet, "Ada 3", id="order-3")
        assert again.run_id == handles[3].run_id
        assert (await retention.prune(client, NOW)).chains == 0


async def test_signals_that_nobody_took_hold_a_run_back(ledger: Ledger) -> None:
    async with ledger.connect() as client:
        late = await client.start_workflow(Waits, id="late")
        await late.signal(Waits.go, "now")
        await late.terminate()
        await asyncio.sleep(0.002)
        held = await retention.prune(client, NOW)
        assert (held.chains, held.held) == (0, 1)
        assert await is_kept(late)
        gone = await retention.prune(client, NOW, undelivered=True)
        assert (gone.chains, gone.held) == (1, 0)
        assert not await is_kept(late)


@pytest.mark.parametrize("name", ["runs.jsonl", "runs.jsonl.gz"])
async def test_what_goes_is_in_the_archive_first(
    ledger: Ledger, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "CHAINS_MAX", 2)
    async with ledger.connect() as client, ledger.worker(client, greet):
        handles = await finished(client, 5)
        heads = {each.run_id: (await client.internals.store.read_run(each._run_key)).head for each in handles}
        with Archive(tmp_path / name) as archive:
            await retention.prune(client, NOW, archive=archive)
        assert archive.runs == 5
    histories = list(read_archive(tmp_path / name))
    assert sorted(each.identity.workflow_id for each in histories) == [f"order-{n}" for n in range(5)]
    for history in histories:
        assert replay(history, greet) == len(history.events)
    opened = gzip.open if name.endswith(".gz") else open
    with opened(tmp_path / name) as lines:
        documents = [json.loads(line) for line in lines]
    for each in documents:
        assert each["status"] == "completed"
        assert bytes.fromhex(each["checksum"]) == heads[each["run"]["run_id"]]
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o600


async def test_what_cannot_be_written_stays(ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with ledger.connect() as client, ledger.worker(client, greet):
        [handle] = await finished(client, 1)

        def full(self: Archive) -> None:
            raise StoreUnavailableError("no space left")

        with Archive(tmp_path / "runs.jsonl") as archive, monkeypatch.context() as patch:
            patch.setattr(Archive, "sync", full)
            with pytest.raises(StoreUnavailableError):
                await retention.prune(client, NOW, archive=archive)
            assert await is_kept(handle)


async def test_a_damaged_run_stays_when_it_is_to_be_archived(file_ledger: Ledger, tmp_path: Path) -> None:
    file_ledger.replay_at_end = False
    async with file_ledger.connect() as client:
        async with file_ledger.worker(client, greet, verify=0.0):
            damaged, sound = await finished(client, 2)
        key = damaged._run_key
        await client.internals.store._submit(  # type: ignore[attr-defined] # behind the ledger's back
            lambda cursor: cursor.execute("UPDATE pledger_history SET body = x'00' WHERE run_key = ?", (key,))
        )
        with Archive(tmp_path / "runs.jsonl") as archive:
            removed = await retention.prune(client, NOW, archive=archive)
        assert [each.run_id for each in removed.damaged] == [damaged.run_id]
        assert (archive.runs, removed.chains) == (1, 1)
        assert not await is_kept(sound)
        assert (await damaged.history(until_damage=True)).damage is not None
        await retention.prune(client, NOW)  # it is not to be archived: it may go
        assert not await is_kept(damaged)


async def test_names_of_archives(ledger: Ledger, tmp_path: Path) -> None:
    (tmp_path / "there.jsonl").write_text("mine")
    with pytest.raises(UsageError, match="is there already, and an archive replaces nothing"):
        Archive(tmp_path / "there.jsonl")
    with pytest.raises(UsageError, match=r"is no name for an archive; end it in \.jsonl or \.jsonl\.gz"):
        Archive(tmp_path / "runs.csv")
    with pytest.raises(StoreUnavailableError, match="cannot be written: No such file or directory"):
        Archive(tmp_path / "nowhere" / "runs.jsonl")
    with pytest.raises(UsageError, match=r"there\.jsonl, line 1: this is no exported history"):
        list(read_archive(tmp_path / "there.jsonl"))
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(b"{}\n" * 100)[:-10])
    with pytest.raises(UsageError, match=r"cut\.jsonl\.gz"):
        list(read_archive(tmp_path / "cut.jsonl.gz"))


async def test_integers_keep_their_digits(ledger: Ledger) -> None:
    async with ledger.connect() as client:
        handle = await client.start_workflow("other", 3544790567247868102, 0.1, id="digits")
        await handle.terminate()
        line = await archived(client, await client.internals.store.read_run(handle._run_key or 0))
        assert b"\n" not in line
        assert msgspec.json.decode(line)["status"] == "terminated"


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ledger = Ledger(f"sqlite:///{tmp_path}/ledger.db")

    async def prepare() -> None:
        async with ledger.connect() as client, ledger.worker(client, greet, Waits):
            await finished(client, 3)
            await client.start_workflow(Waits, id="waits")

    def told(*words: str, code: int = 0) -> Any:
        assert main([*words, "--url", ledger.url, "--json"]) == code
        return json.loads(capsys.readouterr().out)

    asyncio.run(prepare())
    assert told("export", "one.jsonl", "order-1")["runs"] == 1
    assert told("export", "done.jsonl.gz", "--older-than", "0s", "--filter", "type = 'greet'")["runs"] == 3
    assert told("export", "all.jsonl")["runs"] == 4
    assert told("prune", "--older-than", "0s")["workflows"] == 3
    assert told("prune", "--older-than", "0s", "--export", "gone.jsonl", "--yes") == {
        "dry_run": False,
        "workflows": 3,
        "held": 0,
        "by_type": {"greet": 3},
        "damaged": [],
    }
    assert main(["replay", "gone.jsonl", "--app", "tests.engine.test_pruning:greet", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["same"] == 3
    assert main(["prune", "--older-than", "0s", "--url", ledger.url]) == 0
    assert capsys.readouterr().out == "0 workflows would go; --yes removes them\n"
    assert len(list(read_archive(Path("gone.jsonl")))) == 3
    assert main(["export", "again.jsonl", "order-1", "--url", ledger.url]) == 3
    assert "retention has removed its history" in capsys.readouterr().err
    assert main(["history", "order-1", "--url", ledger.url]) == 3
    assert "`pledger history ID --archive FILE` reads it there" in capsys.readouterr().err
    assert main(["history", "order-1", "--archive", "gone.jsonl", "--json"]) == 0
    assert replay(History.read(capsys.readouterr().out.encode()), greet) == 4
    with apsw.Connection(str(ledger.path)) as connection:
        assert connection.execute("SELECT count(DISTINCT run_key) FROM pledger_history").fetchall() == [(1,)]
