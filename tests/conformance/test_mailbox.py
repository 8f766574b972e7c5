"""Messages: accepted once, delivered once, and told what became of them."""

from __future__ import annotations

from typing import Any

import pytest

from pledger.engine.port.answers import Reply, Sent
from pledger.engine.port.operations import INBOX_MAX, Send, inbox_room
from pledger.engine.port.records import Message, RunRow
from pledger.engine.port.verbs import Store
from tests.conformance.harness import (
    NOW,
    append,
    claim,
    open_session,
    owned_run,
    ownerless_run,
    signal,
    terminate,
    write,
)


def cancel(run: RunRow, message_id: str = "c-1", **changes: Any) -> Send:
    return Send(run.run_key, "cancel", message_id, "", b"please", NOW, **changes)


async def deliver(store: Store, run: RunRow, **changes: Any) -> RunRow:
    """Take the whole inbox into the next transition."""
    inbox = await store.read_inbox(run.chain_key)
    consumed = [(message.message_key, run.last_event + n) for n, message in enumerate(inbox, 1)]
    assert await write(store, append(run, consumed=consumed, **changes)) is Reply.WON
    return await store.read_run(run.run_key)


async def read(store: Store, run: RunRow, message_id: str) -> Message:
    message = await store.read_message(run.chain_key, message_id)
    assert message is not None
    return message


async def test_messages_wait_in_the_order_of_their_acceptance(store: Store) -> None:
    run = await owned_run(store, await open_session(store))
    for message_id in ("z", "a", "m"):
        assert await write(store, signal(run, message_id, body=message_id.encode())) == Sent(run.owner)
    inbox = await store.read_inbox(run.chain_key)
    assert [(message.message_id, message.body) for message in inbox] == [("z", b"z"), ("a", b"a"), ("m", b"m")]
    assert [message.message_key for message in inbox] == sorted(message.message_key for message in inbox)


async def test_sent_names_the_owner(store: Store) -> None:
    session = await open_session(store)
    assert await write(store, signal(await owned_run(store, session))) == Sent(session)
    assert await write(store, signal(await ownerless_run(store, "order-2"))) == Sent(None)


async def test_a_message_id_is_accepted_once_while_it_waits(store: Store) -> None:
    run = await owned_run(store, await open_session(store))
    answers = await store.commit([signal(run), signal(run, body=b"[2]")])
    assert answers == [Sent(run.owner), Reply.DUPLICATE]
    assert [message.body for message in await store.read_inbox(run.chain_key)] == [b"[1]"]


async def test_a_message_id_is_accepted_once_also_after_delivery(store: Store) -> None:
    run = await owned_run(store, await open_session(store))
    await write(store, signal(run))
    run = await deliver(store, run)
    assert await store.read_inbox(run.chain_key) == []
    assert await write(store, signal(run)) is Reply.DUPLICATE
    tombstone = await read(store, run, "m-1")
    assert (tombstone.verdict, tombstone.event_id, tombstone.body) == ("delivered", 3, b"")


async def test_a_repeated_message_learns_that_it_was_accepted_even_after_the_close(store: Store) -> None:
    run = await owned_run(store, await open_session(store))
    await write(store, signal(run))
    await deliver(store, run, closed="completed")
    assert await write(store, signal(run)) is Reply.DUPLICATE
    assert await write(store, signal(run, "m-2")) is Reply.CLOSED


async def test_an_id_made_up_for_one_call_leaves_nothing_behind(store: Store) -> None:
    run = await owned_run(store, await open_session(store))
    await write(store, signal(run, keep_id=False))
    assert await write(store, signal(run, keep_id=False)) is Reply.DUPLICATE
    run = await deliver(store, run)
    assert await store.read_message(run.chain_key, "m-1") is None


async def test_only_the_messages_named_are_consumed(store: Store) -> None:
    run = await owned_run(store, await open_session(store))
    for message_id in ("m-1", "m-2", "m-3"):
        await write(store, signal(run, message_id))
    inbox = await store.read_inbox(run.chain_key)
    await write(store, append(run, consumed=[(inbox[1].message_key, 3)]))
    assert [message.message_id for message in await store.read_inbox(run.chain_key)] == ["m-1", "m-3"]


async def test_the_start_message_is_consumed_like_any_other(store: Store) -> None:
    run = await ownerless_run(store)
    [run] = await claim(store, await open_session(store))
    run = await deliver(store, run)
    assert await store.read_inbox(run.chain_key) == []
    assert await store.read_message(run.chain_key, run.run_id) is None


async def test_a_message_may_have_the_id_of_the_run_that_has_not_begun(store: Store) -> None:
    """Callers know that id, and the start waits in the same inbox."""
    run = await ownerless_run(store)
    assert await write(store, signal(run, run.run_id)) == Sent(None)
    assert [each.kind for each in await store.read_inbox(run.chain_key)] == ["start", "signal"]
    assert await write(store, signal(run, run.run_id)) is Reply.DUPLICATE


async def test_a_closed_run_takes_no_message_and_keeps_none(store: Store) -> None:
    run = await owned_run(store, await open_session(store))
    await write(store, append(run, closed="failed"))
    assert await write(store, signal(run)) is Reply.CLOSED
    assert await store.read_message(run.chain_key, "m-1") is None


@pytest.mark.parametrize("end", ["append", "terminate"])
async def test_what_waits_at_the_close_is_undelivered_not_dropped(store: Store, end: str) -> None:
    run = await owned_run(store, await open_session(store))
    await store.commit([signal(run), signal(run, "m-2", keep_id=False), cancel(run)])
    await write(store, append(run, closed="completed") if end == "append" else terminate(run))
    status = (await store.read_run(run.run_key)).status
    assert await store.read_inbox(run.chain_key) == []
    undelivered = await store.read_undelivered(run.chain_key)
    assert [(message.message_id, message.verdict) for message in undelivered] == [
        ("m-1", "undelivered"),
        ("m-2", "undelivered"),
        ("c-1", f"too_late:{status}"),
    ]
    assert [message.body for message in undelivered] == [b"[1]", b"[1]", b"please"]


@pytest.mark.parametrize(
    ("status", "verdict"),
    [("cancelled", "cancelled"), ("completed", "too_late:completed"), ("failed", "too_late:failed")],
)
async def test_a_delivered_cancel_gets_its_verdict_at_the_close(store: Store, status: str, verdict: str) -> None:
    run = await owned_run(store, await open_session(store))
    await store.commit([cancel(run, keep_id=False), signal(run)])
    run = await deliver(store, run)
    delivered = await read(store, run, "c-1")
    assert (delivered.verdict, delivered.event_id, delivered.body) == ("delivered", 3, b"please")
    await write(store, append(run, closed=status))
    assert (await read(store, run, "c-1")).verdict == verdict
    assert (await read(store, run, "m-1")).verdict == "delivered"


async def test_a_cancel_that_comes_with_the_close_gets_its_verdict_too(store: Store) -> None:
    run = await owned_run(store, await open_session(store))
    await write(store, cancel(run))
    run = await deliver(store, run, closed="cancelled")
    assert (await read(store, run, "c-1")).verdict == "cancelled"
    assert await store.read_undelivered(run.chain_key) == []


async def test_a_waiting_cancel_was_too_late_even_when_the_run_was_cancelled(store: Store) -> None:
    run = await owned_run(store, await open_session(store))
    await write(store, cancel(run))
    run = await deliver(store, run)
    await write(store, cancel(run, "c-2"))
    await write(store, append(run, closed="cancelled"))
    assert (await read(store, run, "c-1")).verdict == "cancelled"
    assert (await read(store, run, "c-2")).verdict == "too_late:cancelled"


async def test_an_unknown_mailbox_is_empty(store: Store) -> None:
    assert await store.read_inbox(77) == []
    assert await store.read_undelivered(77) == []
    assert await store.read_message(77, "m-1") is None


# The bound of an inbox ------------------------------------------------------------------------------------------------


async def test_a_full_inbox_takes_no_message_and_loses_none(store: Store) -> None:
    run = await owned_run(store, await open_session(store))
    other = await owned_run(store, await open_session(store), "order-2")
    sent = [signal(run, f"m-{n}", room=3) for n in range(5)]
    answers = await store.commit([*sent, signal(other, room=3)])
    assert [type(answer) is Sent for answer in answers] == [True, True, True, False, False, True]
    assert answers[3:5] == [Reply.FULL, Reply.FULL]
    assert [message.message_id for message in await store.read_inbox(run.chain_key)] == ["m-0", "m-1", "m-2"]
    assert await store.read_message(run.chain_key, "m-3") is None


async def test_a_message_that_a_full_inbox_holds_is_known_again(store: Store) -> None:
    run = await owned_run(store, await open_session(store))
    await store.commit([signal(run, "m-1", room=1), signal(run, "m-2", room=1)])
    assert await write(store, signal(run, "m-1", room=1)) is Reply.DUPLICATE
    assert await write(store, signal(run, "m-2", room=1)) is Reply.FULL


@pytest.mark.parametrize("keep_id", [True, False])
async def test_what_is_delivered_makes_room(store: Store, *, keep_id: bool) -> None:
    run = await owned_run(store, await open_session(store))
    await write(store, signal(run, "m-1", room=1, keep_id=keep_id))
    run = await deliver(store, run)
    assert isinstance(await write(store, signal(run, "m-2", room=1)), Sent)
    assert await write(store, signal(run, "m-3", room=1)) is Reply.FULL


async def test_cancels_count_until_their_verdict(store: Store) -> None:
    run = await owned_run(store, await open_session(store))
    await write(store, cancel(run))
    run = await deliver(store, run)
    assert await write(store, signal(run, room=1)) is Reply.FULL
    assert isinstance(await write(store, signal(run, room=2)), Sent)


async def test_a_closed_run_is_closed_and_not_full(store: Store) -> None:
    run = await owned_run(store, await open_session(store))
    await write(store, signal(run, room=1))
    await write(store, append(run, closed="completed"))
    assert await write(store, signal(run, "m-2", room=1)) is Reply.CLOSED


def test_there_is_room_for_cancels_where_there_is_none_for_signals() -> None:
    assert inbox_room("cancel") > inbox_room("signal") == INBOX_MAX
