"""Runs that continue as new: who goes on with what, and what clients see of it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from pledger import Client, activity, workflow
from pledger.engine.port.answers import Sent
from pledger.engine.port.operations import Append, Send
from pledger.errors import (
    RunBlockedError,
    RunClosedError,
    TerminatedError,
    WorkflowContinuedAsNewError,
    WorkflowFailedError,
)
from pledger.history import events
from tests.engine.harness import Ledger, until


@activity.defn
async def key() -> str:
    return activity.info().idempotency_key


@workflow.defn(owner="logistics", deadline=timedelta(hours=1))
class Rounds:
    """So many runs, each of which does a step and takes a message."""

    def __init__(self) -> None:
        self.got: list[str] = []

    @workflow.run
    async def run(self, rounds: int, before: list[str]) -> list[str]:
        told = [*before, await key()]
        await workflow.wait_condition(lambda: len(self.got) > 0)
        told += self.got[:1]
        if workflow.info().segment < rounds:
            workflow.continue_as_new(rounds, told)
        return told

    @workflow.signal
    def take(self, text: str) -> None:
        self.got.append(text)

    @workflow.query
    def place(self) -> list[Any]:
        info = workflow.info()
        return [info.segment, info.first_run_id, info.continued_run_id]


async def test_a_chain_is_followed_to_its_end(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Rounds, key):
        handle = await client.start_workflow(Rounds, 3, [], id="order-1")
        first = handle.run_id
        for n in range(3):
            await until(lambda n=n: _is_at(client, n + 1))
            assert await handle.query(Rounds.place) == [n + 1, first, [None, first, f"{first}.2"][n]]
            await handle.signal(Rounds.take, f"text {n}")
        told = await handle.result()
        # The keys of steps come from the chain, the segment and the position.
        assert told == [
            part
            for n in range(3)
            for part in (f"{first}/{n + 1}/{(await _scheduled(client, first, n + 1))}", f"text {n}")
        ]
        assert handle.run_id == first
        # Whoever asks for the id, or starts it once more, finds the chain.
        assert await client.handle("order-1", workflow=Rounds).result() == told
        again = await client.start_workflow(Rounds, 3, [], id="order-1")
        assert (again.is_new, again.run_id, await again.result()) == (False, first, told)
        listed = [(each.run_id, each.status, each.segment) async for each in client.list()]
        assert listed == [
            (f"{first}.3", "completed", 3), (f"{first}.2", "continued_as_new", 2), (first, "continued_as_new", 1),
        ]  # fmt: skip
        assert {each.first_run_id async for each in client.list()} == {first}
        with pytest.raises(WorkflowContinuedAsNewError, match=f"run {first}.3 is the newest of its chain"):
            await client.handle("order-1", run_id=first).result(follow_runs=False)


async def _is_at(client: Client, segment: int) -> bool:
    newest = await client.handle("order-1").describe()
    return newest.summary.segment == segment and bool(newest.state.activities_done)


async def _scheduled(client: Client, first: str | None, segment: int) -> int:
    run_id = first if segment == 1 else f"{first}.{segment}"
    history = await client.handle("order-1", run_id=run_id).history()
    return next(each.event_id for each in history.events if each.type == "ActivityScheduled")


async def test_what_a_run_hands_on(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Rounds, key):
        handle = await client.start_workflow(Rounds, 2, [], id="order-1")
        await handle.signal(Rounds.take, "one")
        await until(lambda: _is_at(client, 2))
        [before, after] = [
            (await client.handle("order-1", run_id=f"{handle.run_id}{end}").history()).events[0].event
            for end in ("", ".2")
        ]
        assert isinstance(before, events.RunStarted)
        assert isinstance(after, events.RunStarted)
        assert (after.owner, after.deadline_ms) == ("logistics", before.deadline_ms)
        assert after.seed != before.seed
        assert after.link == events.ChainLink(str(handle.run_id), str(handle.run_id), 2)
        # `describe` is of the newest run, unless one is asked for by its run id.
        assert (await handle.describe()).summary.segment == 2
        named = await client.handle("order-1", run_id=handle.run_id).describe()
        assert (named.summary.status, named.state.successor is not None) == ("continued_as_new", True)
        await handle.signal(Rounds.take, "two")
        assert (await handle.result())[1::2] == ["one", "two"]


@pytest.mark.parametrize("moment", ["before", "first", "last", "after"])
async def test_a_message_at_the_very_moment_of_the_roll_over_in_every_order(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """It comes in the commit before that of the end, in the same one (first, or last), or in the one after it. It names
    the run that ends, and is its successor's."""
    async with ledger.connect() as client, ledger.worker(client, Rounds, key):
        handle = await client.start_workflow(Rounds, 2, [], id="order-1")
        store = client.internals.store
        commit, answered = store.commit, list[Any]()

        def write(batch: Any) -> Any:
            ends = [each for each in batch if isinstance(each, Append) and each.successor is not None]
            return asyncio.ensure_future(with_message(batch, ends[0])) if ends and not answered else commit(batch)

        async def with_message(batch: Any, end: Append) -> list[Any]:
            sent = Send(end.run_key, "signal", "late", "take", b'["late"]', end.time_ms, True, ())
            orders = {
                "before": [[sent], batch],
                "first": [[sent, *batch]],
                "last": [[*batch, sent]],
                "after": [batch, [sent]],
            }
            answers = [answer for part in orders[moment] for answer in await commit(part)]
            answered.append(answers.pop(0 if moment in ("before", "first") else -1))
            return answers

        monkeypatch.setattr(store, "commit", write)
        await handle.signal(Rounds.take, "one")
        assert (await handle.result())[1::2] == ["one", "late"]
        assert isinstance(answered[0], Sent)
        await handle.signal(Rounds.take, "late", message_id="late")  # known, though all of the chain has ended
        assert (await handle.describe()).undelivered == []


@workflow.defn
async def stubborn(rounds: int) -> str:
    """Goes on as new when it is cancelled."""
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        if rounds:
            workflow.continue_as_new(rounds - 1)
        raise
    return "never"


@workflow.defn
async def growing(texts: list[str]) -> int:
    """What it hands on is large, and kept in pieces."""
    if len(texts) < 5:
        workflow.continue_as_new([*texts, f"{len(texts)} " * 2_000])
    return sum(map(len, texts))


async def test_large_arguments_are_handed_on(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, growing):
        assert await client.execute_workflow(growing, [], id="order-1") == 5 * 4_000


async def test_a_request_to_cancel_has_its_verdict_at_the_end_of_the_chain(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, stubborn):
        handle = await client.start_workflow(stubborn, 1, id="order-1")
        first = await handle.cancel("enough")
        await until(lambda: _segment(client, 2))
        assert (await handle.cancel_verdict(first.request_id)).verdict is None
        second = await handle.cancel("really")
        with pytest.raises(WorkflowFailedError, match="cancelled"):
            await handle.result()
        for request in (first, second):
            assert (await handle.cancel_verdict(request.request_id)).verdict == "cancelled"


async def test_whoever_ends_a_chain_ends_its_newest_run(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, stubborn):
        handle = await client.start_workflow(stubborn, 1, id="order-1")
        await handle.cancel()
        await until(lambda: _segment(client, 2))
        named = client.handle("order-1", run_id=handle.run_id)
        paused = await named.pause("a look", by="ada")
        assert paused.run_id == f"{handle.run_id}.2"
        assert await named.resume() is not None
        await named.terminate("enough")
        with pytest.raises(WorkflowFailedError) as failed:
            await named.result()
        assert (failed.value.run_id, failed.value.status) == (f"{handle.run_id}.2", "terminated")
        assert isinstance(failed.value.__cause__, TerminatedError)
        with pytest.raises(RunClosedError):
            await named.signal("anything")


async def _segment(client: Client, segment: int) -> bool:
    return (await client.handle("order-1").describe()).summary.segment == segment


@workflow.defn
async def first_half(order: str) -> str:
    workflow.continue_as_new(order, 2, workflow=second_half, task_queue="elsewhere", deadline=timedelta(minutes=1))


@workflow.defn
async def second_half(order: str, half: int) -> str:
    return f"{order}: {half} of {workflow.info().task_queue}"


async def test_a_chain_may_go_on_as_another_workflow_elsewhere(ledger: Ledger) -> None:
    async with (
        ledger.connect() as client,
        ledger.worker(client, first_half),
        ledger.worker(client, second_half, task_queue="elsewhere"),
    ):
        handle = await client.start_workflow(first_half, "A1", id="order-1")
        assert await handle.result() == "A1: 2 of elsewhere"
        again = await client.start_workflow(first_half, "A1", id="order-1")
        assert not again.is_new
        began = await client.handle("order-1", run_id=handle.run_id).describe()
        assert (await handle.describe()).state.deadline_ms == began.state.last_ms + 60_000


# Checkpoints ----------------------------------------------------------------------------------------------------------


@workflow.defn
async def looping(rounds: int, total: int = 0) -> int:
    while rounds:
        await key()
        total, rounds = total + 1, rounds - 1
        workflow.checkpoint(rounds, total)
    return total


async def test_a_checkpoint_rolls_a_long_loop_over(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, looping, key, max_history_events=100):
        assert await client.execute_workflow(looping, 40, id="order-1") == 40
        runs = [each async for each in client.list()]
        assert len(runs) >= 4
        assert max(each.history_length for each in runs) < 25, "long before the first warning"
        [*_, first] = runs
        history = await client.handle("order-1", run_id=first.run_id).history()
        # What the code was told is recorded: a replay knows no bound.
        assert [each.suggests for each in history.transitions].count(True) == 1


@workflow.defn
class Gathering:
    """Each message has a handler that does a step; a checkpoint may come while handlers are at work."""

    @workflow.init
    def __init__(self, wanted: int, done: list[int]) -> None:
        self.done = [*done]

    @workflow.run
    async def run(self, wanted: int, done: list[int]) -> list[int]:
        while len(self.done) < wanted:
            seen = len(self.done)
            await workflow.wait_condition(lambda seen=seen: len(self.done) > seen)
            workflow.checkpoint(wanted, self.done)
        return self.done

    @workflow.signal
    async def take(self, number: int) -> None:
        await key()
        self.done.append(number)


async def test_no_checkpoint_loses_what_a_handler_does(ledger: Ledger) -> None:
    """Handlers are always at work, and no checkpoint is safe, until messages are held back: then the chain rolls."""
    async with ledger.connect() as client, ledger.worker(client, Gathering, key, max_history_events=150):
        handle = await client.start_workflow(Gathering, 120, [], id="order-1")
        for first in range(0, 120, 10):
            await asyncio.gather(*(handle.signal(Gathering.take, first + n) for n in range(10)))
        assert sorted(await handle.result()) == list(range(120))
        runs = [each async for each in client.list()]
        assert len(runs) > 1
        assert max(each.history_length for each in runs) <= 165


@workflow.defn
async def waiting_beside(rounds: int) -> str:
    """Never comes to a safe checkpoint: another task is always at work."""
    beside = asyncio.create_task(asyncio.sleep(3600))
    for left in range(rounds, 0, -1):
        await key()
        workflow.checkpoint(left)
    beside.cancel()
    return "unharmed"


async def test_a_checkpoint_that_is_not_safe_does_nothing(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, waiting_beside, key, max_history_events=100):
        assert await client.execute_workflow(waiting_beside, 20, id="order-1") == "unharmed"
        assert await client.count() == 1
        handle = await client.start_workflow(waiting_beside, 200, id="order-2")
        with pytest.raises(
            RunBlockedError, match="it comes to checkpoints, and never while nothing of it is in flight"
        ):
            await handle.result()
    # Nothing is lost: with another bound it goes on.
    async with ledger.connect() as client:
        options = {"max_history_events": 10_000, "build_id": "with a higher bound"}
        async with ledger.worker(client, waiting_beside, key, **options):
            assert await client.handle("order-2").result(wait_while_blocked=True) == "unharmed"


@workflow.defn
async def misplaced() -> None:
    async def other() -> None:
        workflow.checkpoint()

    await asyncio.create_task(other())


async def test_a_checkpoint_belongs_in_the_run_method(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, misplaced):
        handle = await client.start_workflow(misplaced, id="order-1")
        with pytest.raises(RunBlockedError, match="outside of the run method"):
            await handle.result()
        await handle.terminate()
