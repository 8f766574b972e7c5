"""Messages accepted for a chain and not yet in its history."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from pledger.engine.port.answers import Answer, Reply, Sent
from pledger.engine.port.operations import Send
from pledger.engine.port.posts import NOTICE
from pledger.engine.port.records import Message
from pledger.store.memory.state import State


def send(state: State, op: Send) -> Answer:
    run = state.run(op.run_key)
    if run.status != "running":
        run = state.current_of(run)
    # Before CLOSED: a sender that repeats a message whose reply it lost must learn that it had been accepted.
    if (run.chain_key, op.message_id) in state.message_keys:
        return Reply.DUPLICATE
    if run.status != "running":
        return Reply.CLOSED
    if is_full(state, run.chain_key, op.room):
        return Reply.FULL
    message = Message(next(state.keys), op.kind, op.message_id, op.name, op.body, op.sent_ms)
    put_message(state, run.chain_key, message, keep_id=op.keep_id)
    is_another = run.run_key != op.run_key
    if run.owner is None or is_another or run.owner not in op.local:
        state.wake(run.run_key)
    return Sent(run.owner, run.run_key if is_another else None)


def is_full(state: State, chain_key: int, room: int) -> bool:
    return sum(not _is_settled(each) for each in state.inboxes[chain_key].values()) >= room


def _is_settled(message: Message) -> bool:
    """Whether it has its verdict; that of a cancel comes with the end of the run."""
    return message.verdict is not None and (message.kind, message.verdict) != ("cancel", "delivered")


def put_message(state: State, chain_key: int, message: Message, *, keep_id: bool) -> None:
    state.inboxes[chain_key][message.message_key] = message
    state.message_keys[chain_key, message.message_id] = message.message_key
    if not keep_id:
        state.unkept.add(message.message_key)


def consume(state: State, chain_key: int, consumed: Sequence[tuple[int, int]]) -> None:
    """Messages that became inputs leave; what is left of one whose id is remembered has no body.

    A cancel stays whole whatever its id: its sender asks for the verdict.
    """
    inbox = state.inboxes[chain_key]
    for message_key, event_id in consumed:
        message = inbox[message_key]
        if message.kind == "cancel":
            inbox[message_key] = replace(message, verdict="delivered", event_id=event_id)
        elif message_key in state.unkept:
            state.unkept.discard(message_key)
            del inbox[message_key]
            del state.message_keys[chain_key, message.message_id]
        else:
            inbox[message_key] = replace(message, verdict="delivered", event_id=event_id, body=b"")


def read_message(state: State, chain_key: int, message_id: str) -> Message | None:
    message_key = state.message_keys.get((chain_key, message_id))
    return None if message_key is None else state.inboxes[chain_key][message_key]


def read_inbox(state: State, chain_key: int) -> list[Message]:
    return state.waiting(chain_key) if chain_key in state.inboxes else []


def read_undelivered(state: State, chain_key: int) -> list[Message]:
    return [
        message
        for message in state.inboxes.get(chain_key, {}).values()
        if message.kind != NOTICE
        and (message.verdict == "undelivered" or (message.verdict or "").startswith("too_late:"))
    ]
