"""What runs publish: once, in order, as long as it is kept, and by nobody who has lost the right to."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from pledger.engine.port import streams as port
from pledger.engine.port.answers import Published, Reply, Started
from pledger.engine.port.operations import Append, Publish, Successor
from pledger.engine.port.records import RunRow
from pledger.engine.port.streams import PAGE_VALUES, Publication, StreamPage, StreamRow, StreamValue
from pledger.engine.port.verbs import Store
from pledger.store.losses import JUMP
from pledger.store.postgres import PostgresStore
from tests.conformance.harness import (
    NOW,
    Ledger,
    append,
    claim,
    claim_tasks,
    finish,
    open_session,
    owned_run,
    reset,
    run_with_tasks,
    start,
    step,
    terminate,
    write,
)


def values(*bodies: bytes, topic: str = "tokens") -> list[Publication]:
    return [Publication(topic, body) for body in bodies]


def publish(run: RunRow, *bodies: bytes, **changes: Any) -> Publish:
    """By the eager attempt of the activity at event 3."""
    fields: dict[str, Any] = {
        "event_id": 3,
        "attempt": 1,
        "owner": None,
        "fence": run.fence,
        "number": 0,
        "values": values(*bodies),
        "time_ms": NOW,
    }
    return Publish(run.run_key, **fields | changes)


async def told(store: Store, run: RunRow, topic: str = "tokens", position: int = 0) -> list[tuple[int, bytes]]:
    page = await store.read_stream(run.chain_key, topic, position)
    return [(each.position, each.body) for each in page.values]


async def test_what_a_transition_publishes_is_written_with_it(store: Store) -> None:
    run = await owned_run(store, await open_session(store))
    published = [*values(b"1", b"2"), *values(b"x", topic="progress"), *values(b"3")]
    assert await write(store, append(run, published=published)) is Reply.WON
    assert await store.read_stream(run.chain_key, "tokens", 0) == StreamPage(
        0, 3, tuple(StreamValue(n, run.run_id, 3, 0, NOW, body) for n, body in enumerate((b"1", b"2", b"3")))
    )
    assert await told(store, run, "progress") == [(0, b"x")]
    assert await told(store, run, position=1) == [(1, b"2"), (2, b"3")]
    assert await store.read_stream(run.chain_key, "tokens", 7) == StreamPage(0, 3, ())
    assert await store.read_stream(run.chain_key, "Tokens", 0) == StreamPage(0, 0, ())
    least = port.WEIGHT_MIN
    assert await store.read_streams(run.chain_key) == [
        StreamRow("progress", 0, 1, least, NOW),
        StreamRow("tokens", 0, 3, 3 * least, NOW),
    ]
    asked = [(run.chain_key, "tokens"), (run.chain_key, "nothing"), (run.chain_key + 1, "tokens")]
    assert await store.read_stream_ends(asked) == {(run.chain_key, "tokens"): 3}
    assert await store.read_stream_ends([]) == {}


async def test_what_is_refused_publishes_nothing(store: Store) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    for refused in (
        append(run, fence=run.fence + 1, published=values(b"1")),
        append(run, expected_event=7, published=values(b"1")),
        start("born", owner=session + 99, first=Append(0, 0, 0, step(1), 2, None, 1, published=values(b"1"))),
    ):
        assert await write(store, refused) is Reply.LOST
    assert await store.read_streams(run.chain_key) == []


async def test_an_append_that_is_repeated_publishes_once(store: Store) -> None:
    run = await owned_run(store, await open_session(store))
    again = append(run, published=values(b"1"), closed="completed")
    assert [await write(store, again), await write(store, again)] == [Reply.WON, Reply.WON]
    assert await told(store, run) == [(0, b"1")]


async def test_a_run_publishes_as_it_is_born(store: Store) -> None:
    session = await open_session(store)
    for number, closed in enumerate((None, "completed")):
        first = Append(0, 0, 0, step(1), 2, None, NOW, published=values(b"1"), closed=closed)  # type: ignore[arg-type]
        answer = await write(store, start(f"born-{number}", owner=session, first=first))
        assert isinstance(answer, Started)
        assert await told(store, await store.read_run(answer.run_key)) == [(0, b"1")]


async def test_a_stream_is_its_chains(store: Store) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    successor = Successor("next", "fulfil", "default", b"started")
    await write(store, append(run, published=values(b"1"), closed="continued_as_new", successor=successor))
    [following] = await claim(store, session)
    await write(store, append(following, published=values(b"2"), closed="failed"))
    ended = await store.read_run(following.run_key)
    assert await told(store, run) == [(0, b"1"), (1, b"2")]
    assert isinstance(await write(store, reset(ended)), Started)
    [again] = await claim(store, session)
    await write(store, append(again, published=values(b"3")))
    page = await store.read_stream(run.chain_key, "tokens", 0)
    assert [(each.run_id, each.body) for each in page.values] == [
        (run.run_id, b"1"),
        ("next", b"2"),
        (again.run_id, b"3"),
    ]


async def test_two_chains_do_not_meet(store: Store) -> None:
    session = await open_session(store)
    one, other = await owned_run(store, session), await owned_run(store, session, "order-2")
    batch = [append(one, published=values(b"1", b"2")), append(other, published=values(b"3"))]
    assert await store.commit(batch) == [Reply.WON, Reply.WON]
    assert (await told(store, one), await told(store, other)) == ([(0, b"1"), (1, b"2")], [(0, b"3")])


# Attempts -------------------------------------------------------------------------------------------------------------


async def test_an_eager_attempt_publishes_by_the_fence_of_its_run(store: Store) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    assert await write(store, publish(run, b"1", b"2")) == Published(run.chain_key)
    assert await write(store, publish(run, b"3", number=2)) == Published(run.chain_key)
    page = await store.read_stream(run.chain_key, "tokens", 0)
    assert [(each.event_id, each.attempt, each.body) for each in page.values] == [
        (3, 1, b"1"),
        (3, 1, b"2"),
        (3, 1, b"3"),
    ]
    assert await write(store, publish(run, b"4", number=3, fence=run.fence - 1)) is Reply.LOST
    await store.close_session(session)
    assert await write(store, publish(run, b"4", number=3)) is Reply.LOST
    assert len((await store.read_stream(run.chain_key, "tokens", 0)).values) == 3


async def test_a_claimed_attempt_publishes_by_its_row(store: Store) -> None:
    session = await open_session(store)
    run = await run_with_tasks(store, session, {})
    [row] = await claim_tasks(store, session)
    right = {"owner": session, "fence": 0}
    assert await write(store, publish(run, b"1", **right)) == Published(run.chain_key)
    for wrong in ({"attempt": 2}, {"owner": session + 1}, {"event_id": 4}):
        assert await write(store, publish(run, b"2", **right | wrong)) is Reply.LOST
    assert await write(store, finish(row)) is Reply.WON
    assert await write(store, publish(run, b"2", number=1, **right)) is Reply.LOST
    assert await told(store, run) == [(0, b"1")]


async def test_a_later_attempt_publishes_behind(store: Store) -> None:
    session = await open_session(store)
    run = await run_with_tasks(store, session, {})
    [row] = await claim_tasks(store, session)
    await write(store, publish(run, b"1", owner=session))
    requeued = replace(row, attempt=2, state="queued", owner=None)
    assert await write(store, finish(row, outcome=None, requeue=requeued)) is Reply.WON
    assert len(await claim_tasks(store, session)) == 1
    await write(store, publish(run, b"1", owner=session, attempt=2))
    page = await store.read_stream(run.chain_key, "tokens", 0)
    assert [(each.attempt, each.body) for each in page.values] == [(1, b"1"), (2, b"1")]


async def test_a_batch_that_is_repeated_is_written_once(store: Store) -> None:
    """Its answer was lost; what comes after it counts on."""
    run = await owned_run(store, await open_session(store))
    batch = publish(run, b"1", b"2")
    for _ in range(2):
        assert await write(store, batch) == Published(run.chain_key)
    longer = publish(run, b"1", b"2", b"3")
    assert await write(store, longer) == Published(run.chain_key)
    assert await write(store, publish(run, b"4", number=3)) == Published(run.chain_key)
    assert await told(store, run) == [(0, b"1"), (1, b"2"), (2, b"3"), (3, b"4")]


async def test_nobody_publishes_for_a_run_that_has_ended(store: Store) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    await write(store, terminate(run))
    assert await write(store, publish(run, b"1")) is Reply.LOST
    assert await write(store, publish(replace(run, run_key=run.run_key + 99), b"1")) is Reply.LOST
    assert await store.read_streams(run.chain_key) == []


async def test_a_transition_and_its_attempts_publish_in_one_batch(store: Store) -> None:
    """In the order of the batch, whatever rounds a store makes of it."""
    session = await open_session(store)
    run = await owned_run(store, session)
    batch = [publish(run, b"1"), append(run, published=values(b"2")), publish(run, b"3", number=1)]
    assert await store.commit(batch) == [Published(run.chain_key), Reply.WON, Published(run.chain_key)]
    assert await told(store, run) == [(0, b"1"), (1, b"2"), (2, b"3")]


# Bounds ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> int:
    """Low enough to come to."""
    for place in ("memory.streams", "sqlite.streams", "postgres.writes"):
        monkeypatch.setattr(f"pledger.store.{place}.WEIGHT_MAX", 10_000)
    return 10_000


async def test_the_oldest_values_go_beyond_the_bound(store: Store, bound: int) -> None:
    run = await owned_run(store, await open_session(store))
    half = bytes(bound // 2)
    assert await write(store, publish(run, half, half)) == Published(run.chain_key)
    assert (await store.read_stream(run.chain_key, "tokens", 0)).first == 0
    await write(store, append(run, published=[*values(b"1"), *values(b"2", topic="other")]))
    page = await store.read_stream(run.chain_key, "tokens", 0)
    assert (page.first, page.next, [each.position for each in page.values]) == (1, 3, [1, 2])
    [other, tokens] = await store.read_streams(run.chain_key)
    assert (other.first, other.next) == (0, 1)
    assert (tokens.first, tokens.next, tokens.weight) == (1, 3, len(half) + port.WEIGHT_MIN)


async def test_the_newest_value_stays_whatever_it_weighs(store: Store, bound: int) -> None:
    run = await owned_run(store, await open_session(store))
    await write(store, publish(run, b"1", bytes(bound + 1)))
    page = await store.read_stream(run.chain_key, "tokens", 0)
    assert [(each.position, len(each.body)) for each in page.values] == [(1, bound + 1)]


async def test_a_page_is_bounded(store: Store) -> None:
    run = await owned_run(store, await open_session(store))
    await write(store, publish(run, *(b"%d" % n for n in range(PAGE_VALUES + 5))))
    assert [n for n, _ in await told(store, run)] == list(range(PAGE_VALUES))
    assert [n for n, _ in await told(store, run, position=PAGE_VALUES)] == list(range(PAGE_VALUES, PAGE_VALUES + 5))
    large = bytes(port.PAGE_WEIGHT // 2)
    await write(store, publish(run, number=PAGE_VALUES + 5, values=values(*[large] * 3, topic="large")))
    assert [n for n, _ in await told(store, run, "large")] == [0, 1]
    assert [n for n, _ in await told(store, run, "large", 2)] == [2]


# Others ---------------------------------------------------------------------------------------------------------------


async def test_who_heeds_a_stream_hears_of_it(ledger: Ledger) -> None:
    store, other = ledger.open(), ledger.open()
    session = await open_session(store)
    run = await owned_run(store, session)
    other.heed_streams([run.chain_key])
    is_server = isinstance(other, PostgresStore)
    if is_server:
        assert await other.wait_for_change(60.0)  # it has begun to listen
    while await other.wait_for_change(0):
        pass
    await write(store, append(run, published=values(b"1")))
    began_s = asyncio.get_running_loop().time()
    # A server says it to those alone who follow, and that it is not for workers.
    assert await other.wait_for_change(60.0) is not is_server
    assert asyncio.get_running_loop().time() < began_s + 30.0
    assert await told(other, run) == [(0, b"1")]


async def test_retention_takes_streams_piece_by_piece(store: Store) -> None:
    run = await owned_run(store, await open_session(store))
    await write(store, append(run, published=[*values(b"1", b"2", b"3"), *values(b"4", topic="other")]))
    assert await store.drop_leftovers(2) == 0
    await write(store, terminate(await store.read_run(run.run_key)))
    assert await store.forget_chains([run.chain_key], -60_000) == 1
    assert await store.read_streams(run.chain_key) == []
    assert await store.read_stream(run.chain_key, "tokens", 0) == StreamPage(0, 0, ())
    assert await store.read_stream_ends([(run.chain_key, "tokens")]) == {}
    dropped = []
    while count := await store.drop_leftovers(2):
        dropped.append(count)
    assert sorted(dropped) == [1, 1, 2]


async def test_positions_are_not_given_again_after_a_loss(store: Store) -> None:
    """Those that were given in the part that is gone may have been read."""
    session = await open_session(store)
    run = await owned_run(store, session)
    await write(store, append(run, published=values(b"1")))
    await store.declare_loss()
    [claimed] = await claim(store, await open_session(store))
    await write(store, append(claimed, published=values(b"2")))
    assert await told(store, run) == [(0, b"1"), (1 + JUMP, b"2")]
    assert await told(store, run, position=57) == [(1 + JUMP, b"2")]


@pytest.mark.parametrize("topic", ["tokens of 'model' \\ %s $1", "🎉e\u0301", "x" * 100])
async def test_topics_are_text(store: Store, topic: str) -> None:
    run = await owned_run(store, await open_session(store))
    await write(store, append(run, published=values(b"1", topic=topic)))
    assert await told(store, run, topic) == [(0, b"1")]
    assert [each.topic for each in await store.read_streams(run.chain_key)] == [topic]
    assert await store.read_stream_ends([(run.chain_key, topic)]) == {(run.chain_key, topic): 1}
