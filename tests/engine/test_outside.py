"""Attempts that are handed out and completed from outside, by their tokens."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from pledger import Client, activity, workflow
from pledger.client import WorkflowHandle
from pledger.engine.port.records import OUTSIDE, TaskRow
from pledger.errors import (
    ApplicationError,
    CancelledError,
    PayloadTooLargeError,
    TokenExpiredError,
    TokenForgedError,
    TokenMisdirectedError,
    TokenSupersededError,
    TokenUsedError,
    UsageError,
    WorkflowFailedError,
)
from pledger.history.retry import RetryPolicy
from tests.engine.harness import Ledger, until, worker_process
from tests.engine.steps import AT_ONCE

LONG = timedelta(minutes=10)


class Outside:
    """Who does the work: gets the token of each attempt, in order."""

    def __init__(self, **options: Any) -> None:
        self.tokens: list[str] = []
        self.details: list[tuple[Any, ...]] = []

        @activity.defn(name="ship", **{"start_to_close_timeout": LONG, "retry_policy": AT_ONCE, **options})
        async def ship(order: str) -> str:
            del order
            self.details.append(activity.info().heartbeat_details)
            self.tokens.append(activity.completion_token())
            activity.raise_complete_async()

        @workflow.defn(name="fulfil")
        async def fulfil() -> str:
            return f"shipped by {await ship('order-1')}"

        self.ship, self.fulfil = ship, fulfil

    async def token(self, number: int = 1) -> str:
        await until(lambda: len(self.tokens) >= number)
        return self.tokens[number - 1]


async def out(handle: WorkflowHandle[Any]) -> TaskRow:
    """The row of the attempt, once it is out."""

    async def found() -> TaskRow | None:
        return next((row for row in (await handle.describe()).pending if row.owner == OUTSIDE), None)

    return await until(found)  # type: ignore[return-value]


async def refusals(client: Client) -> list[str]:
    """What the attempt log of the order says of tokens."""
    described = await client.handle("order-1").describe()
    return [each.outcome for each in described.attempts if each.outcome == "refused"]


async def test_a_token_completes_the_activity_once(ledger: Ledger) -> None:
    outside = Outside()
    async with ledger.connect() as client, ledger.worker(client, outside.fulfil, outside.ship):
        handle = await client.start_workflow(outside.fulfil, id="order-1")
        token = await outside.token()
        assert (await out(handle)).state == "started"
        await client.complete_activity(token, "the carrier", activity=outside.ship)
        assert await handle.result() == "shipped by the carrier"
        for again in (client.complete_activity(token, "another"), client.fail_activity(token, "no")):
            with pytest.raises(TokenUsedError, match="order-1"):
                await again
        assert await refusals(client) == ["refused", "refused"]
        assert [each.type for each in (await handle.history()).events].count("ActivityCompleted") == 1


async def test_nothing_of_the_worker_is_held_while_it_is_out(ledger: Ledger) -> None:
    outside = Outside()
    async with ledger.connect() as client:
        worker = ledger.worker(client, outside.fulfil, outside.ship, max_concurrent_activities=1)
        async with worker:
            first = await client.start_workflow(outside.fulfil, id="order-1")
            second = await client.start_workflow(outside.fulfil, id="order-2")
            tokens = [await outside.token(1), await outside.token(2)]
            await out(first), await out(second)
            [engine] = client.internals.engines
            assert engine.activities.under_way.running == 0
        for token, name in zip(tokens, ("a", "b"), strict=True):
            await client.complete_activity(token, name)  # and no worker is there
        async with ledger.worker(client, outside.fulfil, outside.ship):
            assert sorted([await first.result(), await second.result()]) == ["shipped by a", "shipped by b"]
    assert len(outside.tokens) == 2


async def test_the_death_of_its_worker_does_not_end_it(ledger: Ledger) -> None:
    outside = Outside()
    async with ledger.connect() as client:
        with worker_process(ledger, outside.fulfil, outside.ship) as dying:
            handle = await client.start_workflow(outside.fulfil, id="order-1")
            token = await outside.token()
            await out(handle)
            dying.freeze()
            async with ledger.worker(client, outside.fulfil, outside.ship):
                await until(lambda: _is_owned_here(client))
                await client.complete_activity(token, "the carrier")
                assert await handle.result() == "shipped by the carrier"
    assert len(outside.tokens) == 1


def _is_owned_here(client: Client) -> bool:
    return any(engine.runs.active for engine in client.internals.engines)


async def test_a_failure_is_tried_again_by_the_policy(ledger: Ledger) -> None:
    outside = Outside(retry_policy=RetryPolicy(maximum_attempts=2, initial_interval=timedelta(milliseconds=1)))
    async with ledger.connect() as client, ledger.worker(client, outside.fulfil, outside.ship):
        handle = await client.start_workflow(outside.fulfil, id="order-1")
        first = await outside.token(1)
        assert await client.heartbeat_activity(first, "on the way") is False
        await client.fail_activity(first, ApplicationError("lost in the post", type="Lost"))
        second = await outside.token(2)
        assert outside.details == [(), ("on the way",)]
        with pytest.raises(TokenSupersededError, match="attempt 2"):
            await client.complete_activity(first, "late")
        await client.fail_activity(second, "lost again")
        with pytest.raises(WorkflowFailedError) as failed:
            await handle.result()
        assert "lost again" in str(failed.value.__cause__.__cause__)  # type: ignore[union-attr]
        assert [each.outcome for each in (await handle.describe()).attempts] == ["failed", "refused", "failed"]


async def test_a_failure_that_is_final_is_the_outcome(ledger: Ledger) -> None:
    outside = Outside()
    async with ledger.connect() as client, ledger.worker(client, outside.fulfil, outside.ship):
        handle = await client.start_workflow(outside.fulfil, id="order-1")
        await client.fail_activity(await outside.token(), ApplicationError("no such place", non_retryable=True))
        with pytest.raises(WorkflowFailedError):
            await handle.result()
    assert len(outside.tokens) == 1


async def test_silence_and_time_end_it_as_any_attempt(ledger: Ledger) -> None:
    outside = Outside(heartbeat_timeout=timedelta(milliseconds=400), retry_policy=RetryPolicy(maximum_attempts=2))
    async with ledger.connect() as client, ledger.worker(client, outside.fulfil, outside.ship):
        handle = await client.start_workflow(outside.fulfil, id="order-1")
        first = await outside.token(1)
        for _ in range(4):  # longer than one silence may last
            await client.heartbeat_activity(first)
            await asyncio.sleep(0.2)
        second = await outside.token(2)
        with pytest.raises(TokenSupersededError):
            await client.heartbeat_activity(first)
        await client.complete_activity(second, "the carrier")
        assert await handle.result() == "shipped by the carrier"
        [timed_out, _] = (await handle.describe()).attempts
        assert timed_out.outcome == "timed_out"


async def test_what_starts_to_close_too_late_is_over(ledger: Ledger) -> None:
    outside = Outside(start_to_close_timeout=timedelta(milliseconds=300), retry_policy=RetryPolicy(maximum_attempts=1))
    async with ledger.connect() as client, ledger.worker(client, outside.fulfil, outside.ship):
        handle = await client.start_workflow(outside.fulfil, id="order-1")
        token = await outside.token()
        with pytest.raises(WorkflowFailedError) as failed:
            await handle.result()
        assert "start-to-close timeout after 0.3 s" in str(failed.value.__cause__.__cause__)  # type: ignore[union-attr]
        with pytest.raises(TokenExpiredError, match="it was good until"):
            await client.complete_activity(token, "late")
        assert await refusals(client) == ["refused"]


async def test_a_request_to_cancel_reaches_it_by_its_heartbeats(ledger: Ledger) -> None:
    outside = Outside(cancellation_type="wait")
    async with ledger.connect() as client, ledger.worker(client, outside.fulfil, outside.ship):
        handle = await client.start_workflow(outside.fulfil, id="order-1")
        token = await outside.token()
        with pytest.raises(UsageError, match="nobody has asked"):
            await client.report_cancellation(token)
        verdict = await handle.cancel("the customer left")

        async def asked() -> bool:
            return await client.heartbeat_activity(token)

        await until(asked)
        await client.report_cancellation(token, "stopped the lorry")
        with pytest.raises(WorkflowFailedError) as ended:
            await handle.result()
        assert ended.value.status == "cancelled"
        assert (await handle.cancel_verdict(verdict.request_id)).verdict == "cancelled"


async def test_what_was_asked_to_stop_may_still_complete(ledger: Ledger) -> None:
    outside = Outside(cancellation_type="wait")

    @workflow.defn
    async def waits() -> str:
        shipping = asyncio.ensure_future(outside.ship("order-1"))
        try:
            return await asyncio.shield(shipping)
        except asyncio.CancelledError:
            shipping.cancel()
            return f"all the same by {await shipping}"

    async with ledger.connect() as client, ledger.worker(client, waits, outside.ship):
        handle = await client.start_workflow(waits, id="order-1")
        token = await outside.token()
        await handle.cancel()

        async def asked() -> bool:
            return await client.heartbeat_activity(token)

        await until(asked)
        await client.complete_activity(token, "the carrier")
        assert await handle.result() == "all the same by the carrier"


@pytest.mark.parametrize("executor", ["thread", "async"])
async def test_a_token_may_be_faster_than_its_attempt(ledger: Ledger, executor: str) -> None:
    """Whoever gets it answers before the code has ended: the answer waits for the ledger."""
    tokens: list[str] = []
    go, may_end = threading.Event(), asyncio.Event()

    @activity.defn(name="ship")
    def in_a_thread() -> str:
        tokens.append(activity.info().task_token.decode())
        assert go.wait(10)
        activity.raise_complete_async()

    @activity.defn(name="ship")
    async def in_a_task() -> str:
        tokens.append(activity.completion_token())
        activity.heartbeat("asked")  # so that its row is on the way, and not here
        await may_end.wait()
        activity.raise_complete_async()

    ship = in_a_thread if executor == "thread" else in_a_task

    @workflow.defn
    async def fulfil() -> str:
        return await ship()

    async with ledger.connect() as client, ledger.worker(client, fulfil, ship):
        handle = await client.start_workflow(fulfil, id="order-1")
        await until(lambda: tokens)
        early = asyncio.ensure_future(client.complete_activity(tokens[0], "at once"))
        await asyncio.sleep(0.05)
        assert not early.done()
        go.set()
        may_end.set()
        await early
        assert await handle.result() == "at once"


async def test_what_was_changed_is_forged(ledger: Ledger) -> None:
    outside = Outside()
    async with ledger.connect() as client, ledger.worker(client, outside.fulfil, outside.ship):
        handle = await client.start_workflow(outside.fulfil, id="order-1")
        other = await client.start_workflow(outside.fulfil, id="order-2")
        one, two = await outside.token(1), await outside.token(2)
        await out(handle), await out(other)
        kind, body, signature = one.split(".")
        _, other_body, other_signature = two.split(".")
        swapped = [f"{kind}.{other_body}.{signature}", f"{kind}.{body}.{other_signature}"]
        turned = ("A" if signature[5] != "A" else "B").join([signature[:5], signature[6:]])
        for forged in [*swapped, f"{kind}.{body}.{turned}", f"{kind}.{body}.", "order-1", f"{one}.x", b"\xff"]:
            with pytest.raises(TokenForgedError):
                await client.complete_activity(forged, "a thief")
        assert (
            len(await refusals(client))
            + len([each for each in (await other.describe()).attempts if each.outcome == "refused"])
            == len(swapped) + 2
        )
        await client.complete_activity(one, "a"), await client.complete_activity(two, "b")
        assert sorted([await handle.result(), await other.result()]) == ["shipped by a", "shipped by b"]


async def test_forgers_do_not_push_out_what_is_true(ledger: Ledger) -> None:
    outside = Outside()
    async with ledger.connect() as client, ledger.worker(client, outside.fulfil, outside.ship):
        await client.start_workflow(outside.fulfil, id="order-1")
        first = await outside.token()
        await client.fail_activity(first, "lost")
        body = first.split(".")[1]
        for _ in range(30):
            with pytest.raises(TokenForgedError):
                await client.complete_activity(f"pldg1.{body}.AAAA", "a thief")
        assert len(await refusals(client)) == 20
        await client.complete_activity(await outside.token(2), "the carrier")


async def test_a_token_is_good_for_a_time(ledger: Ledger) -> None:
    tokens: list[str] = []

    @activity.defn
    async def ship() -> str:
        tokens.extend([activity.completion_token(expires_in=timedelta(milliseconds=1)), activity.completion_token()])
        activity.raise_complete_async()

    @workflow.defn
    async def fulfil() -> str:
        return await ship()

    async with ledger.connect() as client, ledger.worker(client, fulfil, ship):
        handle = await client.start_workflow(fulfil, id="order-1")
        await until(lambda: tokens)
        await out(handle)
        with pytest.raises(TokenExpiredError):
            await client.complete_activity(tokens[0], "late")
        await client.complete_activity(tokens[1], "in time")
        assert await handle.result() == "in time"


async def test_another_namespace_and_another_ledger_refuse_it(ledger: Ledger) -> None:
    outside = Outside()
    async with ledger.connect() as client, ledger.worker(client, outside.fulfil, outside.ship):
        handle = await client.start_workflow(outside.fulfil, id="order-1")
        token = await outside.token()
        await out(handle)
        async with ledger.connect("eu") as elsewhere:
            with pytest.raises(TokenMisdirectedError, match="namespace 'default'"):
                await elsewhere.complete_activity(token, "a stranger")
        async with Ledger("memory://another").connect() as elsewhere:
            with pytest.raises(TokenForgedError, match="no key"):
                await elsewhere.complete_activity(token, "a stranger")
        assert await refusals(client) == ["refused"]
        await client.complete_activity(token, "the carrier")


async def test_a_closed_run_takes_nothing_more(ledger: Ledger) -> None:
    outside = Outside()
    async with ledger.connect() as client, ledger.worker(client, outside.fulfil, outside.ship):
        handle = await client.start_workflow(outside.fulfil, id="order-1")
        token = await outside.token()
        await out(handle)
        await handle.terminate()
        with pytest.raises(TokenSupersededError, match="terminated"):
            await client.complete_activity(token, "late")


async def test_keys_are_rotated(ledger: Ledger) -> None:
    outside = Outside()
    async with ledger.connect() as client, ledger.worker(client, outside.fulfil, outside.ship):
        handle = await client.start_workflow(outside.fulfil, id="order-1")
        first = await outside.token(1)
        await client.rotate_token_keys()
        assert await client.heartbeat_activity(first) is False  # kept for a week
        newest = await client.rotate_token_keys(keep=timedelta(0))
        with pytest.raises(TokenForgedError, match="no key"):
            await client.heartbeat_activity(first)
        [key] = await client.internals.store.read_token_keys()
        assert key.key_id == newest
        assert key.secret.hex() not in repr(key)
        assert repr(key.secret) not in repr(key)
        await handle.terminate()


async def test_a_program_may_give_keys_of_its_own(ledger: Ledger) -> None:
    from pledger import connect  # noqa: PLC0415 - with other arguments than the ledger's

    outside = Outside()
    old, new = b"o" * 32, b"n" * 32
    async with connect(ledger.url, token_keys=[old]) as client, ledger.worker(client, outside.fulfil, outside.ship):
        handle = await client.start_workflow(outside.fulfil, id="order-1")
        token = await outside.token()
        async with ledger.connect() as stranger:
            with pytest.raises(TokenForgedError):
                await stranger.complete_activity(token, "a stranger")
        with pytest.raises(UsageError, match="token_keys"):
            await client.rotate_token_keys()
        async with connect(ledger.url, token_keys=[new, old]) as later:
            await later.complete_activity(token, "the carrier")
        assert await handle.result() == "shipped by the carrier"


async def test_of_two_who_complete_it_one_is_accepted(ledger: Ledger) -> None:
    outside = Outside()
    async with ledger.connect() as client, ledger.worker(client, outside.fulfil, outside.ship):
        handle = await client.start_workflow(outside.fulfil, id="order-1")
        token = await outside.token()
        await out(handle)
        async with ledger.connect() as other:
            answers = await asyncio.gather(
                client.complete_activity(token, "one"),
                other.complete_activity(token, "two"),
                client.fail_activity(token, "three"),
                return_exceptions=True,
            )
        assert len([each for each in answers if each is None]) == 1
        assert all(isinstance(each, TokenUsedError | TokenSupersededError) for each in answers if each is not None)
        if answers[2] is None:
            await client.complete_activity(await outside.token(2), "four")
        await handle.result()


async def test_code_that_asks_for_no_token_is_told(ledger: Ledger) -> None:
    @activity.defn(retry_policy=RetryPolicy(maximum_attempts=1))
    async def ship() -> str:
        activity.raise_complete_async()

    @workflow.defn
    async def fulfil() -> str:
        return await ship()

    async with ledger.connect() as client, ledger.worker(client, fulfil, ship):
        with pytest.raises(WorkflowFailedError) as failed:
            await client.execute_workflow(fulfil, id="order-1")
        assert "nobody could complete it" in str(failed.value.__cause__.__cause__)  # type: ignore[union-attr]


async def test_a_result_that_cannot_be_kept_is_refused_before_anything_is_written(ledger: Ledger) -> None:
    outside = Outside()
    async with ledger.connect() as client, ledger.worker(client, outside.fulfil, outside.ship):
        handle = await client.start_workflow(outside.fulfil, id="order-1")
        token = await outside.token()
        with pytest.raises(PayloadTooLargeError):
            await client.complete_activity(token, "x" * 300_000)
        await client.complete_activity(token, "small")
        assert await handle.result() == "shipped by small"


async def test_cancelled_code_may_hand_out_all_the_same(ledger: Ledger) -> None:
    """It was asked to stop and still gave its work away: who has it is told by the first heartbeat."""
    tokens: list[str] = []
    begun = asyncio.Event()

    @activity.defn(cancellation_type="wait")
    async def ship() -> str:
        tokens.append(activity.completion_token())
        begun.set()
        try:
            await asyncio.Event().wait()
        except CancelledError:
            raise
        except asyncio.CancelledError:
            activity.raise_complete_async()
        raise AssertionError("unreachable")

    @workflow.defn
    async def fulfil() -> str:
        return await ship()

    async with ledger.connect() as client, ledger.worker(client, fulfil, ship):
        handle = await client.start_workflow(fulfil, id="order-1")
        await begun.wait()
        await handle.cancel()
        await out(handle)
        assert await client.heartbeat_activity(tokens[0]) is True
        await client.report_cancellation(tokens[0])
        with pytest.raises(WorkflowFailedError):
            await handle.result()
