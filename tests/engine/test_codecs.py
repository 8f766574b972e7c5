"""The codec chain: what is written through it, what is in the ledger then, and what becomes of runs without a key."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

from pledger import Client, RetryPolicy, Worker, activity, connect, errors, workflow
from pledger.client import WithStartWorkflowOperation
from pledger.codecs import AesGcm, KeyRing, Offload, Place, Zstd
from pledger.store.memory import MemoryStore
from pledger.store.postgres import PostgresStore
from tests.engine.harness import LEASE, Ledger, until

CANARY = "the patient's name is Ada"
KEY, OTHER_KEY = bytes(range(32)), bytes(range(1, 33))


@activity.defn(retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=1), maximum_attempts=3))
async def treat(note: str, length: int) -> dict[str, str]:
    activity.publish("told", note)
    if activity.info().attempt == 1:
        activity.heartbeat(note)
        raise errors.ApplicationError("not yet", note)
    return {"note": note, "text": f"{note}, and more. " * length}


@workflow.defn
class Treatment:
    def __init__(self) -> None:
        self.notes: list[str] = []

    @workflow.run
    async def run(self, note: str, length: int, wanted: int = 1) -> list[str]:
        await workflow.wait_condition(lambda: len(self.notes) >= wanted)
        workflow.publish("told", note)
        found = [await treat(self.notes[0], length), await treat(note, length)]
        far: dict[str, str] = await workflow.execute_activity(treat, note, length, task_queue="far")
        return [each["text"] for each in [*found, far]]

    @workflow.signal
    def hear(self, note: str) -> None:
        self.notes.append(note)

    @workflow.query
    def heard(self) -> list[str]:
        return self.notes


@workflow.defn
class Ward:
    """Starts another run, is told of its end, signals it, and goes on as new."""

    @workflow.run
    async def run(self, note: str, length: int, again: bool) -> str:
        child = await workflow.start_child_workflow(Treatment.run, note, length, id=f"{workflow.info().run_id}-child")
        await child.signal(Treatment.hear, note)
        found: list[str] = await child
        if again:
            workflow.continue_as_new(found[0], 1, False)
        return found[0]


@contextlib.asynccontextmanager
async def at(ledger: Ledger, *codecs: Any, works: bool = True, **options: Any) -> AsyncIterator[Client]:
    """A client with these codecs, and its workers."""
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(connect(ledger.url, codecs=codecs))
        if works:
            options = {"verify": 1.0, "lease": LEASE, **options}
            await stack.enter_async_context(
                Worker(client, workflows=[Treatment, Ward, Desk], activities=[treat], **options)
            )
            await stack.enter_async_context(Worker(client, activities=[treat], task_queue="far", lease=LEASE))
        yield client


@pytest.fixture(autouse=True)
def _read_by_its_test_alone(ledger: Ledger) -> None:
    """At the end nobody could read it without the keys."""
    ledger.namespaces = {"nobody's"}


async def everything(ledger: Ledger, client: Client) -> bytes:
    """All that the ledger holds, as its store has it."""
    store = client.internals.store._inner  # type: ignore[attr-defined] # below the codecs
    if isinstance(store, MemoryStore):
        return repr(vars(store.state)).encode()
    if isinstance(store, PostgresStore):
        found = b""
        async with store._reader.use() as connection:
            for table in (*("run", "history", "message", "task"), "attempt", "request", "piece", "published"):
                rows = await (await connection.execute(f"SELECT * FROM {store.address.quoted}.{table}")).fetchall()
                found += b"".join(bytes(each) for row in rows for each in row if isinstance(each, bytes | memoryview))
                found += repr(rows).encode()
        return found
    return b"".join(
        path.read_bytes() for path in sorted(ledger.path.parent.glob("ledger.db*")) if path.suffix != ".db-shm"
    )


@pytest.mark.parametrize("length", [1, 1_000])
async def test_nothing_that_is_encrypted_is_in_the_ledger(ledger: Ledger, length: int) -> None:
    """Arguments, results, signals, details of heartbeats and failures, questions, what is published; of each short
    values, and such as are cut."""
    chain = AesGcm(KeyRing({"k1": KEY}))
    async with at(ledger, chain) as client:
        handle = await client.start_workflow(Treatment.run, CANARY, length, 2, id="t")
        await handle.signal(Treatment.hear, CANARY)
        assert await handle.query(Treatment.heard) == [CANARY]
        assert CANARY.encode() not in await everything(ledger, client)
        await handle.signal(Treatment.hear, "go on")
        assert await handle.result() == [f"{CANARY}, and more. " * length] * 3
        assert {item.value async for item in handle.stream("told")} == {CANARY}
        kept = await everything(ledger, client)
        assert CANARY.encode() not in kept
        assert b"k1" in kept
        assert CANARY.encode() in (await handle.history()).export(), "read through"
        again = await client.start_workflow(Treatment.run, CANARY, length, 2, id="t")
        assert not again.is_new
        with pytest.raises(errors.WorkflowAlreadyStartedError):
            await client.start_workflow(Treatment.run, CANARY + "!", length, 2, id="t")
    async with at(ledger, works=False) as client:
        with pytest.raises(errors.CodecError, match="aes-gcm"):
            await client.handle("t").result()
        with pytest.raises(errors.CodecError, match="aes-gcm"):
            await anext(client.handle("t").stream("told"))


@pytest.mark.parametrize("length", [1, 500])
async def test_what_runs_tell_each_other_is_encrypted_too(ledger: Ledger, length: int) -> None:
    """Arguments of children, messages to them, their ends, and what the next run of a chain begins with."""
    async with at(ledger, AesGcm(KeyRing({"k1": KEY}))) as client:
        handle = await client.start_workflow(Ward.run, CANARY, length, True, id="ward")
        found = await handle.result()
        assert found.startswith(f"{CANARY}, and more. ")
        assert CANARY.encode() not in await everything(ledger, client)


async def test_a_chain_compresses_before_it_encrypts_and_keys_rotate(ledger: Ledger) -> None:
    async with at(ledger, Zstd(), AesGcm(KeyRing({"k1": KEY}))) as client:
        handle = await client.start_workflow(Treatment.run, CANARY, 2_000, 2, id="t")
        await handle.signal(Treatment.hear, CANARY)
        await until(lambda: _heard(handle, 1))
    digest_key = KeyRing({"k1": KEY, "k2": OTHER_KEY})
    async with at(ledger, Zstd(), AesGcm(digest_key)) as client:
        await client.handle("t").signal(Treatment.hear, "go on")
        assert await client.handle("t").result() == [f"{CANARY}, and more. " * 2_000] * 3
        kept = await everything(ledger, client)
        assert b"k1" in kept
        assert b"k2" in kept
    async with at(ledger, AesGcm(digest_key), Zstd(), works=False) as client:
        assert len(await client.handle("t").result()) == 3, "whatever the order now"


async def _heard(handle: Any, count: int) -> bool:
    return len(await handle.query(Treatment.heard)) >= count


class Vanishing:
    """Keys that come and go."""

    def __init__(self) -> None:
        self.keys = {"ada": KEY, "bob": OTHER_KEY}

    def key_id(self, place: Place) -> str:
        return place.workflow_id.partition("-")[0]

    def key(self, key_id: str) -> bytes:
        return self.keys[key_id]


@pytest.mark.parametrize("other", [None, OTHER_KEY], ids=["missing", "wrong"])
async def test_a_run_without_its_key_blocks_and_goes_on_when_it_is_back(ledger: Ledger, other: bytes | None) -> None:
    """By subject: that of another person goes on meanwhile."""
    keys = Vanishing()
    async with at(ledger, AesGcm(keys), works=False) as client:
        for name in ("ada", "bob"):
            handle = await client.start_workflow(Treatment.run, CANARY, 1, id=f"{name}-1")
            await handle.signal(Treatment.hear, "go on")
    del keys.keys["ada"]
    if other is not None:
        keys.keys["ada"] = other
    async with at(ledger, AesGcm(keys)) as client:
        assert len(await client.handle("bob-1").result()) == 3
        with pytest.raises(errors.RunBlockedError) as blocked:
            await client.handle("ada-1").result()
        assert blocked.value.failure_type == "CodecError"
        assert (await client.handle("ada-1").describe()).summary.status == "running"
        keys.keys["ada"] = KEY
        assert len(await client.handle("ada-1").result(wait_while_blocked=True)) == 3


async def test_damage_is_told_from_a_key_that_is_not_there(ledger: Ledger) -> None:
    """A byte that is changed in what is encrypted: the checksum says so, whatever the codec would."""
    if not ledger.url.startswith("sqlite"):
        pytest.skip("one database to change behind the engine's back is enough")
    async with at(ledger, AesGcm(KeyRing({"k1": KEY})), works=False) as client:
        await client.start_workflow(Treatment.run, CANARY, 1, id="t")
    async with at(ledger, AesGcm(KeyRing({"k1": KEY}))) as client:
        await until(lambda: _heard(client.handle("t"), 0))
    with contextlib.closing(apsw.Connection(str(ledger.path))) as database:
        [(key, body)] = database.execute("SELECT rowid, body FROM pledger_history LIMIT 1")
        at_byte = body.index(b"aes-gcm") + 40
        changed = body[:at_byte] + bytes((body[at_byte] ^ 1,)) + body[at_byte + 1 :]
        database.execute("UPDATE pledger_history SET body = ? WHERE rowid = ?", (changed, key))
    async with at(ledger, AesGcm(KeyRing({"k1": KEY}))) as client:
        handle = client.handle("t")
        await handle.signal(Treatment.hear, CANARY)
        with pytest.raises(errors.RunBlockedError, match="checksum") as blocked:
            await handle.result()
        assert blocked.value.failure_type == "CorruptHistoryError"


async def test_an_erased_key_erases_what_it_alone_can_open(ledger: Ledger) -> None:
    keys = Vanishing()
    async with at(ledger, AesGcm(keys)) as client:
        for name in ("ada", "bob"):
            handle = await client.start_workflow(Treatment.run, CANARY, 1_000, id=f"{name}-1")
            await handle.signal(Treatment.hear, CANARY)
            await handle.result()
        del keys.keys["ada"]
        with pytest.raises(errors.CodecError) as erased:
            await client.handle("ada-1").result()
        assert erased.value.key_id == "ada"
        assert (await client.handle("ada-1").describe()).summary.status == "completed"
        assert len(await client.handle("bob-1").result()) == 3


async def test_what_was_plain_before_is_read_beside_what_is_encrypted(ledger: Ledger) -> None:
    async with at(ledger) as client:
        handle = await client.start_workflow(Treatment.run, CANARY, 1_000, 2, id="t")
        await handle.signal(Treatment.hear, "first")
        await until(lambda: _heard(handle, 1))
    async with at(ledger, Zstd(), AesGcm(KeyRing({"k1": KEY}))) as client:
        await client.handle("t").signal(Treatment.hear, "go on")
        assert len(await client.handle("t").result()) == 3


@workflow.defn
class Desk:
    """Is told things by updates, and gives them back."""

    def __init__(self) -> None:
        self.told: list[str] = []

    @workflow.run
    async def run(self) -> list[str]:
        await workflow.wait_condition(lambda: len(self.told) >= 2)
        return self.told

    @workflow.update
    def tell(self, note: str) -> str:
        self.told.append(note)
        return f"{note}: noted"

    @workflow.query
    def all(self, note: str) -> list[str]:
        if note == "fail":
            raise errors.ApplicationError("no", CANARY)
        return [note, *self.told]


@pytest.mark.parametrize("length", [1, 500])
async def test_what_processes_ask_each_other_is_encrypted_too(ledger: Ledger, length: int) -> None:
    """Questions, updates and what is sent with a start, from a client to a worker elsewhere; and the answers."""
    note, chain = CANARY * length, AesGcm(KeyRing({"k1": KEY}))
    async with at(ledger, chain) as working, at(ledger, chain, works=False) as client:
        store, rows = working.internals.store._inner, []  # type: ignore[attr-defined] # below the codecs
        write = store.answer_request

        async def answer_request(key: int, answer: bytes | None, failure: bytes | None, fence: int | None) -> None:
            rows.append((answer or b"") + (failure or b""))
            await write(key, answer, failure, fence)

        store.answer_request = answer_request
        begin = WithStartWorkflowOperation(Desk.run, id="d")
        assert await client.execute_update_with_start_workflow(Desk.tell, note, start_workflow_operation=begin)
        handle = client.handle("d")
        assert await handle.query(Desk.all, note) == [note, note]
        with pytest.raises(errors.QueryFailedError):
            await handle.query(Desk.all, "fail")
        assert CANARY.encode() not in await everything(ledger, client)
        assert await handle.execute_update(Desk.tell, note) == f"{note}: noted"
        assert await handle.result() == [note, note]
        assert len(rows) >= 2
        assert not [row for row in rows if CANARY.encode() in row]
        assert CANARY.encode() not in await everything(ledger, client)


async def test_a_run_that_is_reset_reads_what_another_one_has_written(ledger: Ledger) -> None:
    async with at(ledger, Zstd(), AesGcm(KeyRing({"k1": KEY}))) as client:
        handle = await client.start_workflow(Treatment.run, CANARY, 400, id="t")
        await handle.signal(Treatment.hear, CANARY)
        first = await handle.result()
        again = await handle.reset(5, reason="once more")
        assert await again.result() == first
        assert CANARY.encode() not in await everything(ledger, client)


async def test_a_key_that_goes_away_while_a_run_is_in_memory_blocks_it(ledger: Ledger) -> None:
    keys = Vanishing()
    async with at(ledger, AesGcm(keys)) as client:
        handle = await client.start_workflow(Treatment.run, CANARY, 400, id="ada-1")
        await until(lambda: _heard(handle, 0))
        del keys.keys["ada"]
        with pytest.raises(errors.CodecError) as lacking:
            await handle.signal(Treatment.hear, CANARY)
        assert (lacking.value.codec, lacking.value.key_id) == ("aes-gcm", "ada")
        keys.keys["ada"] = KEY
        await handle.signal(Treatment.hear, CANARY)
        assert len(await handle.result(wait_while_blocked=True)) == 3


@activity.defn
async def lose_the_key(name: str) -> str:
    if not LOST:
        LOST.append(THEIRS.keys.pop(name))
    return CANARY


THEIRS = Vanishing()
LOST: list[bytes] = []


@workflow.defn
async def losing(queue: str) -> str:
    found: str = await workflow.execute_activity(lose_the_key, "ada", task_queue=queue)
    return found


@pytest.mark.parametrize("queue", ["default", "far"])
async def test_an_outcome_that_cannot_be_encrypted_is_not_lost(ledger: Ledger, queue: str) -> None:
    """The key goes while the attempt is under way: what it has done is recorded when the key is back, or done again."""
    LOST.clear()
    async with (
        connect(ledger.url, codecs=[AesGcm(THEIRS)]) as client,
        Worker(client, workflows=[losing], activities=[lose_the_key], lease=LEASE),
        Worker(client, activities=[lose_the_key], task_queue="far", lease=LEASE),
    ):
        handle = await client.start_workflow(losing, queue, id="ada-1")
        await until(lambda: LOST)
        await asyncio.sleep(0.1)
        THEIRS.keys["ada"] = KEY
        async with asyncio.timeout(40):
            assert await handle.result(wait_while_blocked=True) == CANARY


async def test_a_run_whose_payloads_are_away_blocks_and_goes_on_when_they_are_back(
    ledger: Ledger, tmp_path: Path
) -> None:
    """Kept in another store, encrypted: what is damaged or missing there is found, and blocks that run alone."""
    kept, away = tmp_path / "kept", tmp_path / "away"
    chain = Zstd(), AesGcm(KeyRing({"k1": KEY})), Offload(kept.as_uri(), at_least=64)
    async with at(ledger, *chain, works=False) as client:
        for name in ("ada", "bob"):
            handle = await client.start_workflow(Treatment.run, f"{name} {CANARY * 400}", 2, 2, id=name)
            await handle.signal(Treatment.hear, CANARY)
    files = {path: path.read_bytes() for path in kept.rglob("*") if path.is_file()}
    assert files
    assert not [path for path, data in files.items() if CANARY.encode() in data]
    (kept / "default" / "ada").rename(away)
    async with at(ledger, *chain) as client:
        await client.handle("bob").signal(Treatment.hear, "go on")
        assert len(await client.handle("bob").result()) == 3
        with pytest.raises(errors.RunBlockedError, match="is not there") as blocked:
            await client.handle("ada").result()
        assert blocked.value.failure_type == "CodecError"
        away.rename(kept / "default" / "ada")
        await client.handle("ada").signal(Treatment.hear, "go on")
        assert len(await client.handle("ada").result(wait_while_blocked=True)) == 3
