"""What a simulation can do to a verb, on either side of its commit point."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from pledger.engine.port.answers import Reply, Started
from pledger.errors import StoreError, StoreUnavailableError
from pledger.store.memory import MemoryStore, State
from tests.conformance.harness import NOW, append, open_session, owned_run, start, write

Hook = Callable[[str], Awaitable[None] | None]


class Script:
    """Does `on_before` and `on_after` around the verbs named `verb`, and keeps a log of all."""

    def __init__(self, verb: str = "commit", on_before: Hook | None = None, on_after: Hook | None = None) -> None:
        self.verb = verb
        self.on_before = on_before
        self.on_after = on_after
        self.log: list[str] = []

    def before(self, verb: str, detail: tuple[object, ...]) -> Awaitable[None] | None:
        self.log.append(f"before {verb}")
        return self.on_before(verb) if self.on_before is not None and verb == self.verb else None

    def after(self, verb: str, detail: tuple[object, ...]) -> Awaitable[None] | None:
        self.log.append(f"after {verb}")
        return self.on_after(verb) if self.on_after is not None and verb == self.verb else None


def unavailable(_: str) -> None:
    raise StoreUnavailableError("the fault")


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_every_verb_passes_the_hooks() -> None:
    script = Script()
    store = MemoryStore(State(lambda: NOW), script)
    session = await open_session(store)
    run = await owned_run(store, session)
    assert store.renew_session(session, 10) == NOW
    await store.read_inbox(run.chain_key)
    await store.wait_for_change(0)
    verbs = ["open_session", "commit", "read_run", "renew_session", "read_inbox", "wait_for_change"]
    assert script.log == [f"{side} {verb}" for verb in verbs for side in ("before", "after")]


async def test_a_commit_is_applied_when_the_hook_lets_it_through() -> None:
    gate = asyncio.Event()
    state = State(lambda: NOW)

    async def wait() -> None:
        await gate.wait()

    store = MemoryStore(state, Script(on_before=lambda _: wait()))
    future = store.commit([start("1"), start("2")])
    await turns()
    assert not future.done()
    assert state.runs == {}
    gate.set()
    assert all(isinstance(answer, Started) for answer in await future)
    assert len(state.runs) == 2


async def test_a_failure_before_the_commit_point_writes_nothing() -> None:
    state = State(lambda: NOW)
    store = MemoryStore(state, Script(on_before=unavailable))
    with pytest.raises(StoreUnavailableError):
        await store.commit([start()])
    assert state.runs == {}


async def test_a_failure_after_the_commit_point_loses_the_reply_only() -> None:
    state = State(lambda: NOW)
    store = MemoryStore(state, Script(on_after=unavailable))
    with pytest.raises(StoreUnavailableError):
        await store.commit([start()])
    assert len(state.runs) == 1


@pytest.mark.parametrize("side", ["before", "after"])
async def test_a_killed_process_gets_no_reply_and_the_commit_point_decides(side: str) -> None:
    state = State(lambda: NOW)
    handles: list[MemoryStore] = []
    kill: Hook = lambda _: handles[0].kill()  # noqa: E731
    handles.append(MemoryStore(state, Script(on_before=kill) if side == "before" else Script(on_after=kill)))
    future = handles[0].commit([start()])
    await turns()
    assert not future.done()
    assert len(state.runs) == (0 if side == "before" else 1)
    future.cancel()


async def test_a_kill_while_the_commit_is_on_its_way_stops_it() -> None:
    state = State(lambda: NOW)
    gate = asyncio.Event()

    async def wait() -> None:
        await gate.wait()

    store = MemoryStore(state, Script(on_before=lambda _: wait()))
    future = store.commit([start()])
    await turns()
    store.kill()
    gate.set()
    await turns()
    assert not future.done()
    assert state.runs == {}
    future.cancel()


async def test_a_dead_process_does_nothing_any_more_and_leaves_its_things_behind() -> None:
    state = State(lambda: NOW)
    dead, alive = MemoryStore(state), MemoryStore(state)
    session = await open_session(dead)
    run = await owned_run(dead, session)
    dead.kill()
    pending = [dead.commit([append(run)]), asyncio.ensure_future(dead.read_run(run.run_key))]
    await turns()
    assert not any(each.done() for each in pending)
    with pytest.raises(StoreUnavailableError):
        dead.renew_session(session, 10)
    assert (await alive.read_run(run.run_key)).owner == session
    assert await write(alive, append(run)) is Reply.WON
    for each in pending:
        each.cancel()


async def test_a_closed_handle_says_so() -> None:
    store = MemoryStore()
    await store.close()
    with pytest.raises(StoreError, match="open_store"):
        await store.now_ms()
