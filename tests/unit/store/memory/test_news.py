"""What another process is told of: what may concern it, and not that somebody has taken something or still lives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from pledger.engine.port.operations import ConfirmClaim, FinishTask, Heartbeat, Release
from pledger.store.memory import MemoryStore, State
from tests.conformance.harness import (
    LEASE_MS,
    NOW,
    append,
    claim,
    claim_tasks,
    open_session,
    owned_run,
    ownerless_run,
    signal,
    task,
    write,
)

Act = Callable[[MemoryStore, int], Awaitable[object]]


async def take_a_run(store: MemoryStore, session: int) -> None:
    assert await claim(store, session)


async def take_a_task(store: MemoryStore, session: int) -> None:
    assert await claim_tasks(store, session)


async def renew(store: MemoryStore, session: int) -> None:
    store.renew_session(session, LEASE_MS)


async def step(store: MemoryStore, session: int) -> None:
    [run] = await store.owned_runs(session)
    await store.commit([append(run), ConfirmClaim(run.run_key, run.fence)])


async def beat(store: MemoryStore, session: int) -> None:
    [each] = await store.owned_tasks(session)
    await write(store, Heartbeat(each.run_key, each.event_id, each.attempt, session, b"{}"))


async def finish(store: MemoryStore, session: int) -> None:
    [each] = await store.owned_tasks(session)
    await write(store, FinishTask(each.run_key, each.event_id, each.attempt, session, outcome=b"{}"))


async def queue(store: MemoryStore, session: int) -> None:
    [run] = await store.owned_runs(session)
    await write(store, append(run, tasks=[task(run, 3)]))


async def let_go(store: MemoryStore, session: int) -> None:
    [run] = await store.owned_runs(session)
    await write(store, Release(run.run_key, run.fence, NOW + 60_000))


async def send(store: MemoryStore, session: int) -> None:
    [run] = await store.owned_runs(session)
    await write(store, signal(run))


async def end(store: MemoryStore, session: int) -> None:
    [run] = await store.owned_runs(session)
    await write(store, append(run, closed="completed"))


async def leave(store: MemoryStore, session: int) -> None:
    await store.close_session(session)


async def ledger() -> tuple[MemoryStore, MemoryStore, int]:
    """Of a session of the first: a run, and of another run a task that runs and one that is queued."""
    state = State(lambda: NOW)
    one, two = MemoryStore(state), MemoryStore(state)
    session, other = await open_session(one), await open_session(two, "host:2")
    await owned_run(one, session)
    far = await owned_run(two, other, "order-2")
    await write(two, append(far, tasks=[task(far, 3)]))
    await claim_tasks(one, session)
    await write(two, append(await two.read_run(far.run_key), tasks=[task(far, 4)]))
    await ownerless_run(two, "order-3")
    while await two.wait_for_change(0):
        pass
    return one, two, session


@pytest.mark.parametrize("act", [take_a_run, take_a_task, renew, step, beat])
async def test_what_concerns_nobody_else_is_no_news(act: Act) -> None:
    one, two, session = await ledger()
    await act(one, session)
    assert not await two.wait_for_change(0)


@pytest.mark.parametrize("act", [finish, queue, let_go, send, end, leave])
async def test_what_may_concern_another_is_news(act: Act) -> None:
    one, two, session = await ledger()
    await act(one, session)
    assert await two.wait_for_change(0)
