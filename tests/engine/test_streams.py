"""Streams out of runs: what code publishes reaches those who follow, once and in order, live and after a break."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from pledger import SyncClient, activity, workflow
from pledger.client import WorkflowHandle
from pledger.errors import (
    ForbiddenCallError,
    PayloadError,
    QueryFailedError,
    RunBlockedError,
    StreamOvertakenError,
    UsageError,
    WorkflowFailedError,
    WorkflowNotFoundError,
)
from pledger.following import StreamItem
from pledger.history import publishing
from pledger.history.retry import RetryPolicy
from tests.engine.harness import PATIENCE_S, Ledger, worker_process

QUICK = RetryPolicy(initial_interval=timedelta(milliseconds=1), backoff_coefficient=1, maximum_attempts=3)


@dataclass
class Progress:
    done: int
    of: int


async def read(
    handle: WorkflowHandle[Any], topic: str = "progress", offset: int = 0, **options: Any
) -> list[StreamItem[Any]]:
    """All of it, to its end."""
    async with asyncio.timeout(PATIENCE_S):
        return [item async for item in handle.stream(topic, offset, **options)]


async def take(items: AsyncIterator[StreamItem[Any]], count: int) -> list[Any]:
    async with asyncio.timeout(PATIENCE_S):
        return [(await anext(items)).value for _ in range(count)]


@activity.defn
async def work(step: int) -> int:
    return step


@activity.defn(retry_policy=QUICK)
async def stream_tokens(fails: int) -> str:
    """Fails that often, half-way."""
    for token in ("a", "b", "c"):
        activity.publish("tokens", token)
        await asyncio.sleep(0)
        if token == "b" and activity.info().attempt <= fails:
            raise RuntimeError("half-way")
    return "abc"


@activity.defn(retry_policy=QUICK)
def stream_from_a_thread() -> None:
    for token in range(50):
        activity.publish("tokens", token)


@activity.defn(executor="process")
def stream_from_a_process() -> None:
    for token in range(20):
        activity.publish("tokens", token)


def publish_all(topics: str, values: Iterable[Any]) -> None:
    for value in values:
        for topic in topics or [""]:
            workflow.publish(topic, value)


@workflow.defn
class Walk:
    """Publishes as it goes; goes on at a signal."""

    def __init__(self) -> None:
        self.going = 0

    @workflow.signal
    def go(self) -> None:
        self.going += 1

    @workflow.query
    def peek(self) -> None:
        workflow.publish("progress", "from a query")

    @workflow.run
    async def run(self, steps: int) -> None:
        for step in range(steps):
            workflow.publish("progress", Progress(step, steps))
            await workflow.wait_condition(lambda step=step: self.going > step)
            await work(step)
        workflow.publish("progress", Progress(steps, steps))


@workflow.defn
async def chain(left: int) -> str:
    workflow.publish("progress", f"{left} left")
    await work(left)
    if left:
        workflow.continue_as_new(left - 1)
    workflow.publish("progress", "the end")
    return "done"


@workflow.defn
async def talk(fails: int) -> str:
    workflow.publish("tokens", "<")
    text: str = await stream_tokens(fails)
    workflow.publish("tokens", ">")
    return text


@workflow.defn
async def from_elsewhere(how: str) -> None:
    await (stream_from_a_thread() if how == "thread" else stream_from_a_process())


async def test_a_follower_gets_what_is_there_and_what_comes(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Walk, work):
        handle = await client.start_workflow(Walk, 3, id="walk-1")
        items = handle.stream("progress", type=Progress)
        assert await take(items, 1) == [Progress(0, 3)]
        waits = asyncio.ensure_future(take(items, 1))
        for _ in range(3):
            await asyncio.sleep(0)
        await handle.signal("go")
        assert await waits == [Progress(1, 3)]
        await handle.signal("go")
        await handle.signal("go")
        rest = [item async for item in items]
        assert [(item.offset, item.value) for item in rest] == [(2, Progress(2, 3)), (3, Progress(3, 3))]
        assert await handle.result() is None
        # Again, from the middle, after its end; and without types.
        assert [(item.offset, item.value) for item in await read(handle, offset=3)] == [(3, {"done": 3, "of": 3})]
        assert await read(handle, offset=9) == [] == await read(handle, "nothing")
        [first, *_] = await read(handle)
        assert (first.run_id, first.activity_event_id, first.attempt) == (handle.run_id, None, 0)


async def test_a_follower_in_another_process_hears_of_it(ledger: Ledger) -> None:
    async with (
        ledger.connect() as client,
        ledger.connect() as other,
        ledger.worker(client, Walk, work),
    ):
        handle = await client.start_workflow(Walk, 2, id="walk-1")
        theirs = other.handle("walk-1")
        items = theirs.stream("progress", type=Progress)
        assert await take(items, 1) == [Progress(0, 2)]
        for step in (1, 2):
            await handle.signal("go")
            assert await take(items, 1) == [Progress(step, 2)]
        assert [item async for item in items] == []
        assert not any(each.internals.followers for each in (client, other))


async def test_a_stream_goes_on_over_continue_as_new(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, chain, work):
        handle = await client.start_workflow(chain, 2, id="chain-1")
        items = await read(handle)
        assert [item.value for item in items] == ["2 left", "1 left", "0 left", "the end"]
        assert [item.offset for item in items] == [0, 1, 2, 3]
        assert len({item.run_id for item in items}) == 3
        # By the run id of an old one too: the stream is the chain's.
        old = client.handle("chain-1", run_id=items[0].run_id)
        assert [item.offset for item in await read(old, offset=2)] == [2, 3]


async def test_attempts_publish_and_say_which_they_are(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, talk, stream_tokens):
        handle = await client.start_workflow(talk, 1, id="talk-1")
        items = await read(handle, "tokens")
        assert await handle.result() == "abc"
    [scheduled] = {item.activity_event_id for item in items if item.attempt}
    assert scheduled is not None
    assert [(item.value, item.attempt) for item in items] == [
        ("<", 0),
        *(("a", 1), ("b", 1)),
        *(("a", 2), ("b", 2), ("c", 2)),
        (">", 0),
    ]


@pytest.mark.parametrize(("how", "count"), [("thread", 50), ("process", 20)])
async def test_threads_and_processes_publish_in_order(ledger: Ledger, how: str, count: int) -> None:
    async with (
        ledger.connect() as client,
        ledger.worker(client, from_elsewhere, stream_from_a_thread, stream_from_a_process),
    ):
        handle = await client.start_workflow(from_elsewhere, how, id="talk-1")
        assert [item.value for item in await read(handle, "tokens")] == list(range(count))


async def test_a_worker_that_dies_publishes_nothing_twice(ledger: Ledger) -> None:
    """The run is replayed by another one, from its first line."""
    async with ledger.connect() as client:
        with worker_process(ledger, Walk, work) as doomed:
            handle = await client.start_workflow(Walk, 3, id="walk-1")
            items = handle.stream("progress", type=Progress)
            assert await take(items, 1) == [Progress(0, 3)]
            await handle.signal("go")
            assert await take(items, 1) == [Progress(1, 3)]
            doomed.freeze()
            async with ledger.worker(client, Walk, work):
                for _ in range(2):
                    await handle.signal("go")
                assert [item.value async for item in items] == [Progress(2, 3), Progress(3, 3)]
                assert [item.offset for item in await read(handle)] == [0, 1, 2, 3]


async def test_a_reset_goes_on_in_the_stream(ledger: Ledger) -> None:
    """What was published stays: nobody takes back what may have been read. The new run publishes behind it what it does
    anew, and nothing of what it takes over."""
    async with ledger.connect() as client, ledger.worker(client, Walk, work):
        handle = await client.start_workflow(Walk, 2, id="walk-1")
        for _ in range(2):
            await handle.signal("go")
        await handle.result()
        history = await handle.history()
        [first, _] = [event.event_id for event in history.events if event.type == "ActivityCompleted"]
        again = await handle.reset(first, reason="once more")
        await again.result()
        items = await read(again, type=Progress)
        assert [item.value.done for item in items if item.run_id == handle.run_id] == [0, 1, 2]
        assert [item.value.done for item in items if item.run_id == again.run_id][-1] == 2
        assert [item.offset for item in items] == list(range(len(items)))


async def test_queries_may_not_publish(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Walk, work):
        handle = await client.start_workflow(Walk, 0, id="walk-1")
        await handle.result()
        handle = await client.start_workflow(Walk, 1, id="walk-2")
        with pytest.raises(QueryFailedError) as refused:
            await handle.query("peek")
        assert isinstance(refused.value.__cause__, ForbiddenCallError)
        await handle.signal("go")
        await handle.result()
        assert [item.value["done"] for item in await read(handle)] == [0, 1]


async def test_what_cannot_be_published_is_told_at_the_line(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "VALUES_MAX", 3)
    monkeypatch.setattr(publishing, "TOPICS_MAX", 2)

    @workflow.defn
    async def refused(what: str) -> None:
        if what == "values":
            for count in (3, 3, 4):
                publish_all("a", range(count))
                await work(count)
        publish_all(*{"size": ("a", ["x" * 300_000]), "kind": ("a", [object()]), "": ("", [1])}.get(what, ("abc", "x")))

    async with ledger.connect() as client, ledger.worker(client, refused, work):
        for what, error in {
            "topics": "more than 2 topics",
            "values": "3 values with 3 bytes on their way",
            "size": "publishes to 'a' has 300,002 bytes",
            "kind": "cannot be kept",
            "": "the topic is empty",
        }.items():
            handle = await client.start_workflow(refused, what, id=f"refused-{what}")
            with pytest.raises(RunBlockedError, match=error):
                await handle.result()
            # Nothing of the activation that failed is there.
            published = await read(handle, "a", follow=False)
            assert [item.value for item in published] == ([0, 1, 2] * 2 if what == "values" else [])
            await handle.terminate()


async def test_a_thread_waits_for_room(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "VALUES_MAX", 3)
    async with ledger.connect() as client, ledger.worker(client, from_elsewhere, stream_from_a_thread):
        handle = await client.start_workflow(from_elsewhere, "thread", id="talk-1")
        assert [item.value for item in await read(handle, "tokens")] == list(range(50))


async def test_an_async_activity_that_never_waits_is_told(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "VALUES_MAX", 3)

    @activity.defn(retry_policy=RetryPolicy(maximum_attempts=1))
    async def flood() -> None:
        for value in range(4):
            activity.publish("tokens", value)

    @workflow.defn
    async def flooded() -> None:
        await flood()

    async with ledger.connect() as client, ledger.worker(client, flooded, flood):
        handle = await client.start_workflow(flooded, id="flood-1")
        with pytest.raises(WorkflowFailedError, match="flood"):
            await handle.result()
        assert [item.value for item in await read(handle, "tokens")] == [0, 1, 2]


async def test_a_follower_that_was_overtaken_is_told(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("memory.streams", "sqlite.streams", "postgres.writes"):
        monkeypatch.setattr(f"pledger.store.{place}.WEIGHT_MAX", 1_000)
    async with ledger.connect() as client, ledger.worker(client, from_elsewhere, stream_from_a_thread):
        handle = await client.start_workflow(from_elsewhere, "thread", id="talk-1")
        await handle.result()
        with pytest.raises(StreamOvertakenError, match="its oldest value is at offset 47") as overtaken:
            await read(handle, "tokens", 5)
        assert overtaken.value.first_offset == 47
        # From the beginning on means whatever is kept.
        assert [item.offset for item in await read(handle, "tokens")] == [47, 48, 49]
        [stream] = (await handle.describe()).streams
        assert (stream.topic, stream.first_offset, stream.next_offset, stream.bytes) == ("tokens", 47, 50, 768)


async def test_what_does_not_fit_is_refused(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, talk, stream_tokens):
        handle = await client.start_workflow(talk, 0, id="talk-1")
        await handle.result()
        with pytest.raises(PayloadError, match="at offset 0 of topic 'tokens'"):
            await read(handle, "tokens", type=int)
        for offset in (-1, 1.5, True, "1"):
            with pytest.raises(UsageError, match="from_offset"):
                handle.stream("tokens", offset)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="topic"):
            handle.stream("")
        with pytest.raises(WorkflowNotFoundError):
            await read(client.handle("nobody"))
        with pytest.raises(UsageError, match="works only in workflow code"):
            workflow.publish("a", 1)
        with pytest.raises(UsageError, match="works only in an activity"):
            activity.publish("a", 1)


async def test_the_blocking_client_follows(ledger: Ledger) -> None:
    if ledger.url.startswith("memory"):
        pytest.skip("a ledger in memory is one loop's")
    async with ledger.connect() as client, ledger.worker(client, talk, stream_tokens):
        await client.start_workflow(talk, 0, id="talk-1")

        def follow() -> list[Any]:
            with SyncClient(ledger.url) as blocking:
                handle = blocking.handle("talk-1")
                first = next(iter(handle.stream("tokens")))
                return [first.value, *(item.value for item in handle.stream("tokens", first.offset + 1, type=str))]

        assert await asyncio.to_thread(follow) == ["<", "a", "b", "c", ">"]
