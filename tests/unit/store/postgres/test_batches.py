"""What is wrong with one operation of a batch is its own affair."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pledger.engine.port.answers import Reply, Sent, Started
from pledger.engine.port.operations import Send
from pledger.errors import InternalError, PledgerError, UsageError
from pledger.store.postgres import open_postgres
from pledger.store.postgres.found import Found, Run
from pledger.store.postgres.rules.mailbox import send
from pledger.store.postgres.writes import Writes
from tests.conformance.harness import append, open_session, owned_run, signal, start


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"last_event": 2**70}, InternalError),
        ({"last_event": "three"}, InternalError),
        ({"last_event": -5}, InternalError),
    ],
)
async def test_a_number_that_cannot_be_harms_no_neighbour(
    url: str, change: dict[str, Any], kind: type[PledgerError]
) -> None:
    store = await open_postgres(url)
    session = await open_session(store)
    runs = [await owned_run(store, session, f"order-{n}") for n in range(3)]
    batch = [append(runs[0]), append(runs[1], **change), append(runs[2]), signal(runs[2])]
    first, wrong, last, sent = await store.commit(batch)
    assert (first, last) == (Reply.WON, Reply.WON)
    assert isinstance(wrong, kind)
    assert not isinstance(sent, Exception)
    assert [(await store.read_run(run.run_key)).last_event for run in runs] == [4, 2, 4]
    await store.close()


@pytest.mark.parametrize("last_event", [2**70, "three", -5])
async def test_a_number_that_cannot_be_is_told_of_a_step_by_itself(url: str, last_event: Any) -> None:
    store = await open_postgres(url)
    run = await owned_run(store, await open_session(store))
    [wrong] = await store.commit([append(run, last_event=last_event)])
    assert isinstance(wrong, InternalError)
    assert await store.commit([append(run)]) == [Reply.WON]
    await store.close()


async def test_a_step_by_itself_is_written_once(url: str) -> None:
    store = await open_postgres(url)
    run = await owned_run(store, await open_session(store))
    step = append(run)
    assert [await store.commit([each]) for each in (step, append(run, fence=run.fence + 1), step)] == [
        [Reply.WON],
        [Reply.LOST],
        [Reply.WON],  # it is there already
    ]
    assert len(await store.read_history(run.run_key)) == 2
    await store.close()


async def test_a_statement_has_one_plan_whatever_the_size_of_its_numbers(url: str) -> None:
    store = await open_postgres(url)
    for number in (1, 2**15, 2**31, 2**62):
        assert await store.read_history(number) == []
    async with store._reader.use() as connection:
        asked = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE 'SELECT first_event_id%'"
        cursor = await connection.execute(asked)
        assert await cursor.fetchall() == [(1,)]
    await store.close()


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b"])
async def test_a_name_that_postgresql_cannot_keep_is_told(url: str, name: str) -> None:
    store = await open_postgres(url)
    wrong, right = await store.commit([start(name), start("order-1")])
    assert isinstance(wrong, UsageError)
    assert "cannot keep" in str(wrong)
    assert isinstance(right, Started)
    await store.close()


async def test_a_damaged_run_stops_nobody_else(url: str) -> None:
    """Its history is ahead of its row: the key is taken at every try."""
    store = await open_postgres(url)
    session = await open_session(store)
    damaged, sound = [await owned_run(store, session, f"order-{n}") for n in range(2)]
    async with store._writer.use() as connection:
        sql = f"INSERT INTO {store.address.quoted}.history VALUES ($1, 3, '', '')"
        await connection.execute(sql, [damaged.run_key])
    for batch in ([append(damaged), append(sound)], [append(damaged), signal(sound)]):
        wrong, right = await store.commit(batch)
        assert isinstance(wrong, InternalError)
        assert not isinstance(right, Exception)
    await store.close()


async def test_starts_of_one_id_at_the_same_moment_make_one_run(url: str) -> None:
    stores = [await open_postgres(url) for _ in range(4)]
    for number in range(10):
        batch = [start(f"order-{number}-{n}") for n in range(5)]
        answers = await asyncio.gather(*(store.commit(batch) for store in stores))
        for each in zip(*answers, strict=True):
            assert sorted(type(answer).__name__ for answer in each) == ["Existing"] * 3 + ["Started"]
    for store in stores:
        await store.close()


def test_a_message_from_the_owners_process_is_told_in_the_store_once_its_session_is_buried() -> None:
    run = Run(5, 5, "default", "default", "running", 7, 1, 2, bytes(8), None, 0)
    for sessions, woken in (({7}, set()), (set(), {5})):
        found = Found(sessions=sessions, addressees={5: run}, lengths={5: 0})
        writes = Writes()
        assert send(Send(5, "signal", "m-1", "approve", b"[]", 0, local=[7]), found, writes) == Sent(7)
        assert writes.woken == woken
