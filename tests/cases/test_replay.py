"""The cases about replay: what is recorded is the only order, and nothing that leaves no event may move a draw."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import pytest

from pledger import activity, workflow
from pledger.client import History
from pledger.errors import RunBlockedError
from pledger.history import events
from pledger.testing import replay
from tests.cases.harness import asked_again, recorded_commands
from tests.engine.harness import Ledger, until

CACHES = pytest.mark.parametrize("cached", [1, 1_000], ids=["cache off", "cache on"])


def steps_of(commands: Iterable[Any]) -> list[tuple[str, list[Any]]]:
    return [
        (each.activity_type, json.loads(each.args)) for each in commands if isinstance(each, events.ScheduleActivity)
    ]


# RPL-02 ---------------------------------------------------------------------------------------------------------------


@activity.defn
async def ship(key: str) -> None: ...


@workflow.defn
async def parcel() -> None: ...


@workflow.defn
class Ships:
    """Its query draws as the case has it; what it meets is what the query answers."""

    ok = False

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: self.ok)
        await ship(f"ship-{workflow.uuid4()}")
        await workflow.execute_child_workflow(parcel)
        await workflow.execute_child_workflow(parcel, id=f"parcel-{workflow.uuid4()}")

    @workflow.signal
    def go(self) -> None:
        self.ok = True

    @workflow.query
    def status(self) -> str:
        try:
            return str(workflow.uuid4())
        except Exception as error:  # noqa: BLE001 - what users do
            return type(error).__name__


@CACHES
@pytest.mark.parametrize("asked", [0, 1, 7])
async def test_RPL_02_queries_that_draw_do_not_move_the_runs_ids(ledger: Ledger, cached: int, asked: int) -> None:
    async with ledger.connect() as client, ledger.worker(client, Ships, ship, parcel, max_cached_runs=cached):
        # With the cache off, another run takes the place of this one in memory.
        for workflow_id in ("order-1", "order-2"):
            await client.start_workflow(Ships, id=workflow_id)
        handle = client.handle("order-1", workflow=Ships)
        for _ in range(asked):
            # The draw is refused; the query sees that and nothing else of it is left.
            assert await handle.query(Ships.status) == "ForbiddenCallError"
        await handle.signal(Ships.go)
        await handle.result()
        await client.handle("order-2").terminate()
        history = await handle.history()
    # What it asks for without any query, by the same seed, is what it asked for after so many.
    assert asked_again(history, Ships) == recorded_commands(history)
    assert len(steps_of(recorded_commands(history))) == 1
    # That of the children too: their ids are among what is compared.
    assert sum(isinstance(each, events.StartChild) for each in recorded_commands(history)) == 2
    # No query left anything in the history.
    assert [each.type for each in history.events if each.type.startswith("Quer")] == []


def test_a_moved_draw_shows_when_it_is_asked_again() -> None:
    """The comparison above must be able to fail."""
    named = iter(["a", "b"])

    @workflow.defn
    async def draws() -> None:
        await ship(next(named))

    async def recorded_history() -> History:
        ledger = Ledger("memory://asked-again")
        async with ledger.connect() as client, ledger.worker(client, draws, ship, verify=0.0):
            handle = await client.start_workflow(draws, id="order-1")
            await handle.result()
            history: History = await handle.history()
            return history

    history = asyncio.run(recorded_history())
    assert asked_again(history, draws) != recorded_commands(history)


# RPL-03 ---------------------------------------------------------------------------------------------------------------


@workflow.defn
class Jobs:
    """One job at a time: a message that asks for the second while the first one runs does nothing."""

    def __init__(self) -> None:
        self.running = 0
        self.over = False

    @workflow.run
    async def run(self) -> str:
        hour = asyncio.create_task(asyncio.sleep(3_600))
        await workflow.wait_condition(lambda: self.over and self.running == 0)
        hour.cancel()
        return "over"

    async def job(self, number: int) -> None:
        self.running += 1
        await job(number)
        self.running -= 1

    @workflow.signal
    async def start(self) -> None:
        await self.job(1)

    @workflow.update
    async def resume(self) -> None:
        if self.running == 0:
            await self.job(2)

    @workflow.signal
    def finish(self) -> None:
        self.over = True

    @workflow.query
    def count(self) -> int:
        return self.running


@activity.defn
async def job(number: int) -> None: ...


@CACHES
async def test_RPL_03_an_update_is_not_replayed_ahead_of_the_completion_before_it(ledger: Ledger, cached: int) -> None:
    async with ledger.connect() as client, ledger.worker(client, Jobs, job, max_cached_runs=cached):
        handle = await client.start_workflow(Jobs, id="order-1")
        await handle.signal(Jobs.start)
        await until(lambda: _done(handle, 1))
        await handle.execute_update(Jobs.resume)
        await handle.signal(Jobs.finish)
        assert await handle.result() == "over"
        history = await handle.history()
    found = [each.type for each in history.events]
    first, second = (at for at, each in enumerate(found) if each == "ActivityCompleted")
    message = [at for at, each in enumerate(history.events) if each.attributes.get("name") == "resume"]
    assert first < message[0] < second
    assert steps_of(recorded_commands(history)) == [("job", [1]), ("job", [2])]
    assert found.count("UpdateCompleted") == 1
    # Job 2 is asked for by the update, in the same place, however often it is replayed.
    for _ in range(10):
        assert asked_again(history, Jobs) == recorded_commands(history)
        assert replay(history, Jobs) == len(history.events)


async def _done(handle: Any, count: int) -> bool:
    return bool((await handle.describe()).state.activities_done == count)


# RPL-05 ---------------------------------------------------------------------------------------------------------------
# The fifty new processes with their hash seeds and dummy objects are in tests/unit/machine/test_hashes.py.


TWENTY = [f"{n:02}" for n in range(20)]


@activity.defn
async def step(name: str) -> str:
    return name


async def waited(name: str) -> str:
    return await step(name)


@workflow.defn
async def by_the_standard_library() -> list[str]:
    taken = []
    for names in ("abc", "def"):
        done, _ = await asyncio.wait([asyncio.create_task(waited(name), name=name) for name in names])
        taken += sorted(task.get_name() for task in done)
    tasks = [asyncio.create_task(waited(name)) for name in TWENTY]
    for one in asyncio.as_completed(tasks):
        taken.append(await step(f"post {await one}"))
    return taken


@workflow.defn
async def by_our_own() -> list[str]:
    taken = []
    for names in ("abc", "def"):
        done, _ = await workflow.wait([asyncio.create_task(waited(name)) for name in names])
        taken += [task.result() for task in done]
    in_order: AsyncIterator[Any] = workflow.as_completed([waited(name) for name in TWENTY])
    return taken + [await step(f"post {await one}") async for one in in_order]


@CACHES
@pytest.mark.parametrize("code", [by_the_standard_library, by_our_own], ids=["asyncio", "workflow"])
async def test_RPL_05_sets_of_tasks_start_in_the_order_of_the_list(
    ledger: Ledger, code: Callable[..., Any], cached: int
) -> None:
    async with ledger.connect() as client, ledger.worker(client, code, step, max_cached_runs=cached):
        handle = await client.start_workflow(code, id="order-1")
        result = await handle.result()
        history = await handle.history()
    names = [args[0] for _, args in steps_of(recorded_commands(history))]
    posts = [name for name in names if name.startswith("post")]
    assert [name for name in names if name not in posts] == [*"abcdef", *TWENTY]
    # Completed ones come in the order in which their completion is recorded, whoever looks.
    ids = {each.event_id: each.attributes["args"][0] for each in history.events if each.type == "ActivityScheduled"}
    ends = [each.attributes["scheduled_event_id"] for each in history.events if each.type == "ActivityCompleted"]
    assert posts == [f"post {ids[each]}" for each in ends if ids[each] in TWENTY]
    # `wait` gives all six at once: a tie, in the order of the arguments.
    assert result == [*"abcdef", *posts]
    assert asked_again(history, code) == recorded_commands(history)


async def test_RPL_05_the_unsafe_form_of_the_standard_helper_raises(ledger: Ledger) -> None:
    """Given coroutines, it starts them in the order of a set, before anybody could bring order to it."""
    ledger.replay_at_end = False

    @workflow.defn
    async def unsafe() -> None:
        coroutines = [waited(name) for name in TWENTY]
        try:
            for one in asyncio.as_completed(coroutines):
                await one
        finally:
            for each in coroutines:
                each.close()

    async with ledger.connect() as client, ledger.worker(client, unsafe, step):
        handle = await client.start_workflow(unsafe, id="order-1")
        with pytest.raises(RunBlockedError, match=r"Instead: workflow\.as_completed\(\)"):
            await handle.result()
        assert steps_of(recorded_commands(await handle.history())) == []


@workflow.defn
async def ties() -> list[str]:
    handles = [workflow.start_activity(step, name) for name in "abc"]
    await asyncio.gather(*handles)
    return [await one async for one in workflow.as_completed(reversed(handles))]


async def test_RPL_05_ties_come_in_the_order_of_the_arguments(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, ties, step):
        assert await client.execute_workflow(ties, id="order-1") == ["c", "b", "a"]


# RPL-07 ---------------------------------------------------------------------------------------------------------------


@activity.defn
async def pay(key: str) -> str:
    return key


@activity.defn
async def mail(key: str) -> str:
    return key


@workflow.defn
async def pays_and_mails() -> list[str]:
    paid = await pay(str(workflow.uuid4()))
    await workflow.sleep(0.01)
    return [paid, await mail(str(workflow.uuid4()))]


@CACHES
async def test_RPL_07_a_reset_keeps_the_seed_of_the_part_that_is_replayed(ledger: Ledger, cached: int) -> None:
    async with ledger.connect() as client, ledger.worker(client, pays_and_mails, pay, mail, max_cached_runs=cached):
        first = await client.start_workflow(pays_and_mails, id="order-1")
        paid, mailed = await first.result()
        history = await first.history()
        timer = next(each.event_id for each in history.events if each.type == "TimerStarted")
        seen, handle = [], first
        for _ in range(2):
            handle = await handle.reset(timer)
            again = await handle.result()
            # The id of before the point is the one that was recorded, and nobody was paid once more.
            assert again[0] == paid
            seen.append(again[1])
            reset = await handle.history()
            assert [each.type for each in reset.events].count("ActivityCompleted") == 2
            assert reset.events[1].attributes["args"] == [paid]
            # Whatever is drawn after the point is the same in every later replay of the run.
            for _ in range(2):
                assert replay(reset, pays_and_mails) == len(reset.events)
            assert asked_again(reset, pays_and_mails) == recorded_commands(reset)
        # The same seed, and so the same at the same place: what the outside knows by this id is not done twice.
        assert seen == [mailed, mailed]


# RPL-08 ---------------------------------------------------------------------------------------------------------------


async def test_RPL_08_a_changed_input_is_no_mismatch(ledger: Ledger) -> None:
    wall_clock = {"now": "2026-08-03T10:00:00Z"}

    @activity.defn
    async def check_hour(now: str) -> dict[str, int]:
        return {"late": 0}

    @workflow.defn
    async def monitor() -> dict[str, int]:
        return await check_hour(wall_clock["now"])

    async with ledger.connect() as client, ledger.worker(client, monitor, check_hour):
        handle = await client.start_workflow(monitor, id="order-1")
        assert await handle.result() == {"late": 0}
        history = await handle.history()
    wall_clock["now"] = "2026-08-04T00:00:00Z"
    assert replay(history, monitor) == len(history.events)
    assert steps_of(recorded_commands(history)) == [("check_hour", ["2026-08-03T10:00:00Z"])]
    assert steps_of(asked_again(history, monitor)) == [("check_hour", ["2026-08-04T00:00:00Z"])]


async def test_RPL_08_a_look_at_the_wall_clock_is_told_at_the_first_execution(ledger: Ledger) -> None:
    ledger.replay_at_end = False

    @workflow.defn
    async def monitor() -> float:
        return time.time()

    async with ledger.connect() as client, ledger.worker(client, monitor):
        handle = await client.start_workflow(monitor, id="order-1")
        with pytest.raises(RunBlockedError, match=r"time\.time") as caught:
            await handle.result()
    assert caught.value.failure_type == "ForbiddenCallError"
