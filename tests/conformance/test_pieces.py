"""Pieces of large values: written with what refers to them, and there as long as a run uses them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pledger.engine.port.answers import Reply
from pledger.engine.port.operations import Append, Operation
from pledger.engine.port.records import Piece, RunRow
from pledger.engine.port.verbs import Store
from tests.conformance.harness import (
    Clock,
    append,
    finish,
    open_session,
    owned_run,
    ownerless_run,
    run_with_tasks,
    signal,
    start,
    step,
    task,
    terminate,
    write,
)

ONE, OTHER = Piece(b"1" * 24, b"one" * 3_000), Piece(b"2" * 24, bytes(range(256)))


async def pieces_of(store: Store, *pieces: Piece) -> set[bytes]:
    found = await store.read_pieces([piece.name for piece in pieces])
    assert all(found[piece.name] == piece.body for piece in pieces if piece.name in found)
    return set(found)


async def forget(store: Store, run: RunRow) -> None:
    row = await store.read_run(run.run_key)
    if row.status == "running":
        assert await write(store, terminate(row)) is Reply.WON
    assert await store.forget_chains([run.chain_key], -60_000) == 1


async def test_pieces_come_with_what_refers_to_them(store: Store) -> None:
    run = await owned_run(store, await open_session(store))
    assert await write(store, append(run, pieces=[ONE, OTHER])) is Reply.WON
    assert await store.read_pieces([ONE.name, b"3" * 24]) == {ONE.name: ONE.body}
    assert await pieces_of(store, ONE, OTHER) == {ONE.name, OTHER.name}
    assert await store.read_pieces([]) == {}


async def test_what_is_refused_brings_none(store: Store) -> None:
    session = await open_session(store)
    run = await owned_run(store, session)
    await ownerless_run(store, "taken")
    refused: list[Operation] = [
        append(run, fence=run.fence + 1, pieces=[ONE]),
        append(run, expected_event=7, pieces=[ONE]),
        start("taken", pieces=[ONE]),
        start("born", owner=session + 99, first=Append(0, 0, 0, step(1), 2, None, 1), pieces=[ONE]),
    ]
    for operation in refused:
        assert await write(store, operation) is not Reply.WON
    await write(store, signal(run, "m-1"))
    assert await write(store, signal(run, "m-1", pieces=[ONE])) is Reply.DUPLICATE
    assert await pieces_of(store, ONE) == set()


async def test_every_operation_can_bring_some(store: Store, clock: Clock) -> None:
    session = await open_session(store)
    brought = [replace(ONE, name=bytes([number]) * 24) for number in range(6)]
    run = await run_with_tasks(store, session, {"state": "started", "owner": session, "started_ms": clock.now_ms})
    await write(store, start("waits", pieces=brought[:1]))
    await write(store, start("born", owner=session, first=Append(0, 0, 0, step(1), 2, None, 1), pieces=brought[1:2]))
    await write(store, signal(run, pieces=brought[2:3]))
    row = task(run, 3, state="started", owner=session)
    await write(store, replace(finish(row), pieces=brought[3:4]))
    run = await store.read_run(run.run_key)
    await write(store, append(run, closed="completed", pieces=brought[4:5]))
    assert await pieces_of(store, *brought) == {piece.name for piece in brought[:5]}


@pytest.mark.parametrize("together", [True, False])
async def test_a_piece_stays_as_long_as_a_run_uses_it(store: Store, together: bool) -> None:
    session = await open_session(store)
    runs = [await owned_run(store, session, name) for name in ("one", "other")]
    both = [append(runs[0], pieces=[ONE, OTHER]), append(runs[1], pieces=[ONE])]
    if together:
        assert await store.commit(both) == [Reply.WON, Reply.WON]
    else:
        assert [await write(store, each) for each in both] == [Reply.WON, Reply.WON]
    await forget(store, runs[0])
    assert await pieces_of(store, ONE, OTHER) == {ONE.name}
    await forget(store, runs[1])
    assert await pieces_of(store, ONE, OTHER) == set()


async def test_what_is_there_is_written_once_more_without_harm(store: Store) -> None:
    """Also when it was forgotten meanwhile."""
    session = await open_session(store)
    run = await owned_run(store, session)
    assert await write(store, append(run, pieces=[ONE])) is Reply.WON
    run = await store.read_run(run.run_key)
    again = append(run, pieces=[ONE, OTHER])
    assert await write(store, again) is Reply.WON
    assert await write(store, again) is Reply.WON, "its answer was lost"
    await forget(store, run)
    other = await owned_run(store, session, "other")
    assert await write(store, append(other, pieces=[ONE])) is Reply.WON
    assert await pieces_of(store, ONE, OTHER) == {ONE.name}
