"""What decides by itself is written in one round trip, and what does not win there is decided as everything else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pledger.engine.port.answers import Existing, Reply, Started
from pledger.engine.port.operations import Append, StartRun
from pledger.store.postgres import PostgresStore, open_postgres
from pledger.store.postgres.at_once import at_once
from pledger.store.postgres.commit import Committer
from tests.conformance.harness import NOW, append, open_session, owned_run, signal, start, step, task, write
from tests.engine.harness import until


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many operations there were in each batch that was looked into before it was written."""
    lengths: list[int] = []
    rule = Committer._write

    async def look(self: Committer, connection: Any, batch: Any) -> Any:
        lengths.append(len(batch))
        return await rule(self, connection, batch)

    monkeypatch.setattr(Committer, "_write", look)
    return lengths


def birth(session: int, workflow_id: str, **changes: Any) -> StartRun:
    return start(workflow_id, owner=session, first=Append(0, 0, 0, step(1), 2, None, NOW), **changes)


async def verdicts(store: PostgresStore, chain_key: int) -> list[str | None]:
    return [message.verdict for message in await store.read_undelivered(chain_key)]


async def test_starts_steps_and_last_steps_of_a_batch(url: str, looked: list[int]) -> None:
    store = await open_postgres(url)
    session = await open_session(store)
    goes_on, ends = [await owned_run(store, session, workflow_id) for workflow_id in ("goes-on", "ends")]
    await write(store, signal(ends))
    assert await write(store, append(ends, tasks=[task(ends, 3)])) is Reply.WON
    ends = await store.read_run(ends.run_key)
    looked.clear()
    batch = [birth(session, "first"), append(ends, closed="completed"), birth(session, "second"), append(goes_on)]
    first, won, second, also = await store.commit(batch)
    assert (won, also, looked) == (Reply.WON, Reply.WON, [])
    assert isinstance(first, Started)
    assert isinstance(second, Started)
    assert first.run_key < second.run_key, "who started first"
    born, closed = await store.read_run(second.run_key), await store.read_run(ends.run_key)
    assert (born.workflow_id, born.owner, born.fence, born.last_event) == ("second", session, 1, 2)
    assert len(await store.read_history(born.run_key)) == 1
    assert (closed.status, closed.owner, closed.fence) == ("completed", None, ends.fence + 1)
    assert await verdicts(store, ends.chain_key) == ["undelivered"]
    assert await store.read_tasks(ends.run_key) == []
    assert (await store.read_run(goes_on.run_key)).last_event == goes_on.last_event + 2
    await store.close()


async def test_what_does_not_win_harms_nobody_and_is_told_why(url: str, looked: list[int]) -> None:
    store = await open_postgres(url)
    session = await open_session(store)
    one, other = [await owned_run(store, session, workflow_id) for workflow_id in ("one", "other")]
    await write(store, signal(other))
    looked.clear()
    late = append(other, fence=other.fence + 1, closed="completed")
    answers = await store.commit([birth(session, "one", run_id="x"), late, birth(10**9, "new"), append(one)])
    assert isinstance(answers[0], Existing)
    assert answers[1:] == [Reply.LOST, Reply.LOST, Reply.WON]
    assert looked == [3]
    assert (await store.read_run(other.run_key)).status == "running"
    assert len(await store.read_inbox(other.chain_key)) == 1, "nobody has settled it"
    await store.close()


async def test_a_message_that_comes_just_before_a_last_step_gets_its_verdict(url: str) -> None:
    """Its sender has the chain, and the last step waits for that: what it then sees has to be as of after it."""
    store = await open_postgres(url)
    run = await owned_run(store, await open_session(store))
    schema = store.address.quoted
    place = store.address.conninfo
    with psycopg.connect(place) as sender, psycopg.connect(place, autocommit=True) as watch:
        keep = f"SELECT FROM {schema}.chain WHERE chain_key = {run.chain_key} FOR KEY SHARE"
        sender.execute(keep)  # type: ignore[call-overload]
        closing = asyncio.create_task(write(store, append(run, closed="completed")))
        assert store._writer._connection is not None
        waits = "SELECT FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"
        pid = store._writer._connection.info.backend_pid
        await until(lambda: watch.execute(waits, [pid]).fetchall())
        message = f"INSERT INTO {schema}.message (chain_key, kind, message_id, name, body, sent_ms, keep_id)"
        sender.execute(f"{message} VALUES ({run.chain_key}, 'signal', 'm', 'go', '', 0, true)")  # type: ignore[call-overload]
        sender.commit()
        assert await closing is Reply.WON
    assert await verdicts(store, run.chain_key) == ["undelivered"]
    await store.close()


def test_what_is_to_be_looked_into() -> None:
    plain = Append(1, 1, 2, step(3), 4, None, NOW)
    end = Append(2, 1, 2, step(3), 4, None, NOW, closed="completed")
    assert at_once([plain, end, birth(1, "a")]) is not None
    assert at_once([plain, plain]) is None, "two of one run"
    assert at_once([birth(1, "a"), birth(1, "a")]) is None, "two of one id"
    assert at_once([start("a")]) is None, "nobody's"
    assert at_once([Append(1, 1, 2, step(3), 4, None, NOW, consumed=[(1, 3)])]) is None, "with a message"
    born = birth(1, "a")
    assert born.first is not None
    born.first.closed = "completed"
    assert at_once([born]) is None, "over at once"
