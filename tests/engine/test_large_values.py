"""Large values: kept once by what is in them, read through by everything that reads."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pledger import Client, RetryPolicy, activity, errors, workflow
from pledger.history import payloads, pieces, transition
from pledger.history.events import ScheduleActivity
from pledger.history.sealing import MARK, unseal
from pledger.history.transition import StoredTransition
from pledger.store.memory import MemoryStore
from pledger.store.postgres import PostgresStore
from tests.engine.harness import Ledger, until

#: Over the size from which on a value is kept in pieces, and what a model says at each call.
WORDS = "the ledger keeps what was said, and the promise is kept where it was given.\n"


def said(number: int, size: int = 6_000) -> dict[str, Any]:
    return {"role": "assistant", "number": number, "content": (f"{number}: " + WORDS * (size // len(WORDS) + 1))[:size]}


@activity.defn
async def answer(transcript: list[dict[str, Any]]) -> dict[str, Any]:
    return said(len(transcript))


@workflow.defn
class Talk:
    def __init__(self) -> None:
        self.heard: list[str] = []

    @workflow.signal
    def hear(self, text: str) -> None:
        self.heard.append(text)

    @workflow.query
    def last(self) -> dict[str, Any]:
        return self.transcript[-1]

    @workflow.run
    async def run(self, transcript: list[dict[str, Any]], calls: int, signals: int = 0) -> list[dict[str, Any]]:
        self.transcript = transcript
        await workflow.wait_condition(lambda: len(self.heard) >= signals)
        self.transcript += [{"role": "user", "number": -1, "content": text} for text in self.heard]
        for _ in range(calls):
            self.transcript.append(await answer(self.transcript))
        return self.transcript


async def kept(client: Client, workflow_id: str) -> list[StoredTransition]:
    """The history, as the store has it."""
    store = client.internals.store
    row = await store.find_run("default", workflow_id)
    assert row is not None
    return await store.read_history(row.run_key)


async def names_of(client: Client, workflow_id: str) -> set[bytes]:
    """The pieces that the outlines of the history name."""
    names: set[bytes] = set()
    for stored in await kept(client, workflow_id):
        for event in transition.decode(stored.kept or stored.body).events():
            for field in ("args", "result"):
                data = getattr(event, field, b"")
                if data.startswith(MARK):
                    names.update(pieces.names_in(pieces.decode_outline(unseal(data)[1]).entries))
    return names


async def test_a_transcript_that_grows_is_kept_once(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Talk, answer):
        handle = await client.start_workflow(Talk.run, [said(0)], 12, id="talk")
        transcript = await handle.result()
        assert transcript == [said(n) for n in range(13)]
        assert all(len(each.kept or each.body) < 2 * pieces.LARGE for each in await kept(client, "talk"))
        names = await names_of(client, "talk")
        there = await client.internals.store.read_pieces(sorted(names))
        assert there.keys() == names
        assert sum(map(len, there.values())) < 1.3 * len(payloads.encode(transcript))
        history = await handle.history()
        scheduled = [event.event for event in history.events if isinstance(event.event, ScheduleActivity)]
        assert [len(event.args) > pieces.LARGE for event in scheduled] == [True] * 12, "read through"


async def test_a_run_with_large_values_comes_back(ledger: Ledger) -> None:
    async with ledger.connect() as client:
        handle = await client.start_workflow(Talk.run, [said(0)], 2, 2, id="talk")
        await handle.signal(Talk.hear, "x" * 20_000)
        async with ledger.worker(client, Talk, answer):
            assert (await handle.query(Talk.last))["number"] == 0
        await handle.signal(Talk.hear, WORDS * 200)
    async with ledger.connect() as client, ledger.worker(client, Talk, answer):
        transcript = await client.handle("talk").result()
    assert [len(each["content"]) for each in transcript] == [6_000, 20_000, len(WORDS) * 200, 6_000, 6_000]


async def test_activities_elsewhere_have_their_large_arguments(ledger: Ledger) -> None:
    """Through task rows: their commands, their outcomes, the details of their heartbeats."""
    async with ledger.connect() as client:
        far = ledger.worker(client, far_answer, task_queue="far")
        async with ledger.worker(client, Ask), far:
            handle = await client.start_workflow(Ask, [said(n) for n in range(3)], id="ask")
            assert await handle.result() == [3, WORDS * 100, said(9, 30_000)]


async def test_what_retention_forgets_takes_its_pieces(ledger: Ledger) -> None:
    """But for those that another run uses."""
    ledger.replay_at_end = False
    async with ledger.connect() as client, ledger.worker(client, Talk, answer):
        for name, calls in (("one", 3), ("other", 1)):
            await client.execute_workflow(Talk.run, [said(0)], calls, id=name)
        store, names = client.internals.store, await names_of(client, "one")
        shared = names & await names_of(client, "other")
        assert shared
        assert names - shared
        await until(lambda: _forgets(client, "one"))
        assert (await store.read_pieces(sorted(names))).keys() == shared
        assert await client.handle("other").result() == [said(0), said(1)]
        await until(lambda: _forgets(client, "other"))
        assert await store.read_pieces(sorted(names)) == {}


async def _forgets(client: Client, workflow_id: str) -> bool:
    store = client.internals.store
    row = await store.find_run("default", workflow_id)
    assert row is not None
    return await store.forget_chains([row.chain_key], -60_000) == 1


async def test_a_piece_that_is_gone_parks_its_run_alone(ledger: Ledger) -> None:
    """It says which event, and another run goes on; when the piece is back, so does this one."""
    ledger.replay_at_end = False
    async with ledger.connect() as client:
        async with ledger.worker(client, Talk, answer):
            handle = await client.start_workflow(Talk.run, [said(0)], 1, 1, id="talk")
            await handle.query(Talk.last)
        names = await names_of(client, "talk")
        await lose_pieces(client.internals.store, names)
        await client.start_workflow(Talk.run, [said(1)], 1, 1, id="other")
        await handle.signal(Talk.hear, "go on")
        await client.handle("other").signal(Talk.hear, "go on")
        async with ledger.worker(client, Talk, answer, build_id="2"):
            assert len(await client.handle("other").result()) == 3
            with pytest.raises(errors.RunBlockedError, match="a piece of a payload is missing") as blocked:
                await handle.result()
            assert blocked.value.failure_type == "CorruptHistoryError"
        with pytest.raises(errors.CorruptHistoryError) as missing:
            await handle.history()
        assert missing.value.event_id == 1
        await handle.terminate()
        await until(lambda: _forgets(client, "talk"))


async def lose_pieces(store: Any, names: set[bytes]) -> None:
    """As damage would."""
    inner = store._inner
    if isinstance(inner, MemoryStore):
        for name in names:
            del inner.state.pieces[name]
    elif isinstance(inner, PostgresStore):
        async with inner._writer.use() as connection:
            await connection.execute(f"DELETE FROM {inner.address.quoted}.piece_use")
            await connection.execute(f"DELETE FROM {inner.address.quoted}.piece")
    else:
        await inner._submit(lambda cursor: cursor.execute("DELETE FROM pledger_piece", ()))


async def test_what_is_small_is_kept_as_it_was(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Talk, answer_briefly):
        await client.execute_workflow(Talk.run, [said(0, 10)], 3, id="talk")
        assert all(each.kept is None for each in await kept(client, "talk"))


@activity.defn(name="answer")
async def answer_briefly(transcript: list[dict[str, Any]]) -> dict[str, Any]:
    return said(len(transcript), 20)


@activity.defn(retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=1), maximum_attempts=2))
async def far_answer(transcript: list[dict[str, Any]]) -> list[Any]:
    if activity.info().attempt == 1:
        activity.heartbeat(WORDS * 100)
        raise errors.ApplicationError("not yet", said(5, 9_000))
    return [len(transcript), activity.info().heartbeat_details[0], said(9, 30_000)]


@workflow.defn
async def Ask(transcript: list[dict[str, Any]]) -> list[Any]:
    found: list[Any] = await workflow.execute_activity(far_answer, transcript, task_queue="far")
    return found
