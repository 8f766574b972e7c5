"""What the store is given in place of plain payloads, where they are kept for lists."""

from __future__ import annotations

import asyncio

from pledger.engine.port.answers import Started
from pledger.engine.port.operations import Append, StartRun, Successor
from pledger.engine.sealed_store import sealed_store
from pledger.engine.vault import Vault
from pledger.errors import CodecError
from pledger.history.events import RunStarted
from pledger.history.sealing import Place, is_sealed
from pledger.history.transition import StoredTransition, encode_event
from pledger.store.memory import MemoryStore

STARTED = encode_event(RunStarted("fulfil", b"[]", b"seed"))


class Bound:
    """Turns bytes round, and tells by the place whether it is the right one."""

    name = "bound"

    def encode(self, data: bytes, place: Place) -> bytes:
        return f"{place}".encode() + b"\n" + data[::-1]

    def decode(self, data: bytes, place: Place) -> bytes:
        at, _, turned = data.partition(b"\n")
        if at != f"{place}".encode():
            raise CodecError(f"it was sealed at {at!r}, and not at {place}")
        return turned[::-1]


async def _memos() -> None:
    inner = MemoryStore()
    store = sealed_store(inner, Vault([Bound()]))
    session = (await store.open_session("host", "default", "default", "code", 60_000)).session_key
    born = Append(0, 0, 0, StoredTransition(1, b"", bytes(8)), 2, None, 0, memo=b'{"who":"grace"}')
    start = StartRun(
        "default", "order-1", "r1", "fulfil", "default", b"", STARTED, 0, owner=session, first=born, memo=b'{"a":1}'
    )
    [begun] = await store.commit([start])
    assert isinstance(begun, Started)
    run_key = begun.run_key

    async def memo(key: int) -> bytes | None:
        kept = (await inner.read_labels([key]))[key].memo
        assert kept is None or (is_sealed(kept) and b"grace" not in kept)
        return (await store.read_labels([key]))[key].memo

    assert await memo(run_key) == b'{"who":"grace"}'
    step = StoredTransition(3, b"", bytes(8))
    await store.commit([Append(run_key, 1, 2, step, 4, None, 0, memo=b'{"who":"grace","n":2}')])
    assert await memo(run_key) == b'{"who":"grace","n":2}'
    # It is handed on as it is kept, and read in the next run of the chain.
    end = StoredTransition(5, b"", bytes(8))
    successor = Successor("r1.2", "fulfil", "default", STARTED)
    await store.commit([Append(run_key, 1, 4, end, 6, None, 0, "continued_as_new", successor=successor)])
    newest = await store.find_run("default", "order-1")
    assert newest is not None
    assert newest.run_key != run_key
    assert await memo(newest.run_key) == b'{"who":"grace","n":2}'
    # Who has not the key sees none, and the rest of the list.
    other = sealed_store(inner, Vault([]))
    assert (await other.read_labels([run_key]))[run_key].memo is None


def test_a_memo_is_sealed_for_lists_too_and_is_its_chains() -> None:
    asyncio.run(_memos())
