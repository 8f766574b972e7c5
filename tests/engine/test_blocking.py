"""Runs that their code cannot carry on: visible at once, state intact, and going on by themselves with fitting code."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import apsw
import pytest

from pledger import activity, workflow
from pledger.errors import CorruptHistoryError, NondeterminismError, RunBlockedError, WorkflowFailedError
from tests.engine.harness import Ledger, until


@activity.defn
async def step(name: str) -> str:
    return name


def fulfil_with(body: Callable[[], Any]) -> Any:
    """A version of the workflow `fulfil`."""

    @workflow.defn(name="fulfil")
    async def fulfil() -> str:
        result: str = await body()
        return result

    return fulfil


async def broken() -> str:
    charged = await step("charge")
    raise ValueError(f"a bug after {charged}")


async def fixed() -> str:
    return await step("charge") + " and shipped"


async def test_a_bug_blocks_the_run_with_its_traceback_at_once(
    ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    ledger.replay_at_end = False
    async with ledger.connect() as client, ledger.worker(client, fulfil_with(broken), step):
        handle = await client.start_workflow("fulfil", id="order-1")
        with pytest.raises(RunBlockedError) as caught:
            await handle.result()
        error = caught.value
        assert (error.workflow_id, error.run_id, error.failure_type) == ("order-1", handle.run_id, "ValueError")
        assert "in broken" in error.traceback
        assert "ValueError: a bug after charge" in str(error)
        for text in (str(error), caplog.text):
            assert "in broken" in text
            assert "machine.py" not in text  # the frames are the author's own
        assert "Its state is intact. Deploy a fix (or roll back)" in str(error)
        # A query asks for the same.
        with pytest.raises(RunBlockedError):
            await handle.query("anything")
        described = await handle.describe()
        assert described.state.status == "running"
        assert described.blocked is not None
        assert (described.blocked["reason"], described.blocked["type"]) == ("bug", "ValueError")
        # Nothing of the transition is kept, nor lost.
        assert [each.type for each in (await handle.history()).events] == ["RunStarted", "ActivityScheduled"]


async def test_the_reason_of_a_block_is_bounded(ledger: Ledger) -> None:
    ledger.replay_at_end = False

    async def verbose() -> str:
        raise ValueError("x" * 1_000_000)

    async with ledger.connect() as client, ledger.worker(client, fulfil_with(verbose)):
        handle = await client.start_workflow("fulfil", id="order-1")
        with pytest.raises(RunBlockedError, match="characters left out") as caught:
            await handle.result()
        assert len(str(caught.value)) < 50_000


class WebhookError(Exception):
    event_id = object()


class UnnotedError(Exception):
    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]
        raise RuntimeError("no notes")


@workflow.defn
async def fragile(error: str) -> str:
    if error:
        raise {"webhook": WebhookError, "unnoted": UnnotedError}[error]("a bug")
    return "done"


@pytest.mark.parametrize("error", ["webhook", "unnoted"])
async def test_whatever_the_bug_is_like_it_blocks_its_own_run_and_no_other(ledger: Ledger, error: str) -> None:
    ledger.replay_at_end = False
    async with ledger.connect() as client:
        handles = [
            await client.start_workflow(fragile, each, id=f"order-{n}") for n, each in enumerate(["", error, ""])
        ]
        async with ledger.worker(client, fragile):  # takes all three in one turn
            assert [await handles[n].result() for n in (0, 2)] == ["done", "done"]
            with pytest.raises(RunBlockedError) as caught:
                await handles[1].result()
    assert "in fragile" in caught.value.traceback
    assert type(caught.value.traceback) is str


async def test_a_bug_of_pledger_in_one_run_takes_no_other_of_its_turn_with_it(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.replay_at_end = False
    monkeypatch.setattr("pledger.engine.blocks.reason", lambda *_: 1 / 0)
    async with ledger.connect() as client:
        handles = [
            await client.start_workflow(fragile, each, id=f"order-{n}") for n, each in enumerate(["", "webhook", ""])
        ]
        async with ledger.worker(client, fragile):
            assert [await handles[n].result() for n in (0, 2)] == ["done", "done"]


async def test_a_block_clears_by_itself_when_fitting_code_takes_the_run(ledger: Ledger) -> None:
    made: list[str] = []

    @activity.defn(name="step")
    async def counted(name: str) -> str:
        made.append(name)
        return name

    ledger.replay_at_end = False
    async with ledger.connect() as client:
        async with ledger.worker(client, fulfil_with(broken), counted, build_id="v1"):
            handle = await client.start_workflow("fulfil", id="order-1")
            with pytest.raises(RunBlockedError):
                await handle.result()
        waiting = asyncio.create_task(handle.result(wait_while_blocked=True))
        async with ledger.worker(client, fulfil_with(fixed), counted, build_id="v2"):
            assert await waiting == "charge and shipped"
        assert (await handle.describe()).blocked is None
    # The result of the step was there; whether its attempt is counted as lost is not for the run to say.
    assert made[0] == "charge"


async def test_the_same_code_does_not_take_a_blocked_run_again(ledger: Ledger) -> None:
    tried: list[int] = []

    async def tries() -> str:
        tried.append(1)
        raise ValueError("a bug")

    async with ledger.connect() as client:
        handle = await client.start_workflow("fulfil", id="order-1")
        for _ in range(3):
            async with ledger.worker(client, fulfil_with(tries), build_id="v1"):
                with pytest.raises(RunBlockedError):
                    await handle.result()
    assert len(tried) == 1


async def test_another_identity_with_the_same_bug_blocks_it_again(ledger: Ledger) -> None:
    ledger.replay_at_end = False
    async with ledger.connect() as client:
        for build_id in ("v1", "v2"):
            async with ledger.worker(client, fulfil_with(broken), step, build_id=build_id):
                handle = await client.start_workflow("fulfil", id="order-1")
                with pytest.raises(RunBlockedError):
                    await handle.result()


async def test_two_versions_with_the_same_bug_beside_each_other_try_once_each(ledger: Ledger) -> None:
    tried: list[str] = []

    def version(build_id: str) -> Any:
        async def tries() -> str:
            tried.append(build_id)
            raise ValueError("a bug")

        return fulfil_with(tries)

    @workflow.defn
    async def healthy() -> str:
        return "ok"

    async with ledger.connect() as client, ledger.connect() as other:
        handle = await client.start_workflow("fulfil", id="order-1")
        async with (
            ledger.worker(client, version("v1"), build_id="v1"),
            ledger.worker(other, version("v2"), healthy, build_id="v2"),
        ):
            await until(lambda: len(tried) >= 2)
            for number in range(5):  # both look about, again and again
                assert await other.execute_workflow(healthy, id=f"order-{number + 2}") == "ok"
            with pytest.raises(RunBlockedError):
                await handle.result()
    assert sorted(tried) == ["v1", "v2"]


async def test_changed_code_blocks_a_run_in_flight_and_rolling_back_clears_it(ledger: Ledger) -> None:
    @workflow.defn(name="fulfil")
    class Before:
        go = False

        @workflow.run
        async def run(self) -> str:
            result = await step("charge")
            await workflow.wait_condition(lambda: self.go)
            return result

        @workflow.signal
        def finish(self) -> None:
            self.go = True

    async def reserves_first() -> str:
        await workflow.execute_activity("reserve_stock")
        return await step("charge")

    ledger.replay_at_end = False
    async with ledger.connect() as client:
        async with ledger.worker(client, Before, step, build_id="v1"):
            handle = await client.start_workflow("fulfil", id="order-1")
            await until(lambda: _done(handle))
        async with ledger.worker(client, fulfil_with(reserves_first), step, build_id="v2"):
            await handle.signal("finish")
            with pytest.raises(RunBlockedError) as caught:
                await handle.result()
            assert caught.value.failure_type == NondeterminismError.__name__
            assert "recorded  ScheduleActivity 'step'" in str(caught.value)
            assert "replayed  ScheduleActivity 'reserve_stock'   test_blocking.py:" in str(caught.value)
            blocked = (await handle.describe()).blocked
            assert blocked is not None
            assert (blocked["reason"], blocked["event_id"]) == ("nondeterminism", 2)
        async with ledger.worker(client, Before, step, build_id="v1"):
            assert await handle.result(wait_while_blocked=True) == "charge"


async def _done(handle: Any) -> bool:
    return bool((await handle.describe()).state.activities_done)


@pytest.mark.parametrize("when", ["first line", "later"])
async def test_workflow_code_that_exits_does_not_take_the_worker_along(ledger: Ledger, when: str) -> None:
    async def exits() -> str:
        if when == "later":
            await step("charge")
        sys.exit("out")

    @workflow.defn
    async def healthy() -> str:
        return await step("ok")

    ledger.replay_at_end = False
    async with ledger.connect() as client, ledger.worker(client, fulfil_with(exits), healthy, step):
        handle = await client.start_workflow("fulfil", id="order-1")
        with pytest.raises(RunBlockedError) as caught:
            await handle.result()
        assert caught.value.failure_type == "SystemExit"
        assert await client.execute_workflow(healthy, id="order-2") == "ok"


async def test_code_that_does_not_give_the_thread_back_is_interrupted_and_blocked(ledger: Ledger) -> None:
    async def spins() -> str:
        while True:
            pass

    async with (
        ledger.connect() as client,
        ledger.worker(client, fulfil_with(spins), deadlock_timeout=timedelta(milliseconds=100)),
    ):
        # Not awaited at once: the start itself would spin in this very thread, and come back by the watchdog.
        handle = await client.start_workflow("fulfil", id="order-1")
        with pytest.raises(RunBlockedError) as caught:
            await handle.result()
        assert caught.value.failure_type == "StuckError"


async def test_a_forbidden_call_blocks_and_names_the_remedy(ledger: Ledger) -> None:
    async def opens() -> str:
        with open(__file__) as file:  # noqa: ASYNC230, PTH123 - what must not be
            return file.read()

    async with ledger.connect() as client, ledger.worker(client, fulfil_with(opens)):
        handle = await client.start_workflow("fulfil", id="order-1")
        with pytest.raises(RunBlockedError, match="do it in an activity") as caught:
            await handle.result()
        assert caught.value.failure_type == "ForbiddenCallError"


async def test_a_query_that_cannot_be_answered_because_its_run_blocks_says_so(ledger: Ledger) -> None:
    @workflow.defn
    class Breaks:
        @workflow.run
        async def run(self) -> None:
            await asyncio.Event().wait()

        @workflow.signal
        def stumble(self) -> None:
            raise ValueError("a bug")

        @workflow.query
        def state(self) -> str:
            return "fine"

    ledger.replay_at_end = False
    async with ledger.connect() as client, ledger.worker(client, Breaks):
        handle = await client.start_workflow(Breaks, id="order-1")
        assert await handle.query(Breaks.state) == "fine"
        await handle.signal(Breaks.stumble)
        with pytest.raises(RunBlockedError):
            await handle.result()
        with pytest.raises(RunBlockedError, match="ValueError: a bug"):
            await handle.query(Breaks.state)


async def test_one_blocked_run_is_no_concern_of_its_neighbours(ledger: Ledger) -> None:
    @workflow.defn
    async def sometimes(number: int) -> int:
        await step("charge")
        if number % 3 == 0:
            raise ValueError("a bug")
        return number

    ledger.replay_at_end = False
    async with ledger.connect() as client, ledger.worker(client, sometimes, step):
        handles = [await client.start_workflow(sometimes, n, id=f"order-{n}") for n in range(30)]
        results = await asyncio.gather(*(handle.result() for handle in handles), return_exceptions=True)
        blocked = [n for n, result in enumerate(results) if isinstance(result, RunBlockedError)]
        assert blocked == list(range(0, 30, 3))
        assert await client.count("blocked = true") == 10
        assert await client.count("status = 'completed'") == 20


# Damage in the file ---------------------------------------------------------------------------------------------------


def change(ledger: Ledger, sql: str) -> None:
    """What somebody with the file might do to it, while no process has it open."""
    database = apsw.Connection(str(ledger.path))
    database.execute(sql)
    database.close()


DAMAGES = {
    "a changed row": (
        "UPDATE pledger_history SET body = CAST('changed' AS BLOB) WHERE first_event_id = 1",
        1,
        "its checksum does not fit its content",
    ),
    "a lost row": (
        "DELETE FROM pledger_history WHERE first_event_id = 3",
        3,
        "it is missing (the next one found is 5)",
    ),
    "a truncated history": (
        "DELETE FROM pledger_history WHERE first_event_id >= 5",
        5,
        "the run's row knows 5 events, the history 4",
    ),
    "a changed head": (
        "UPDATE pledger_run SET head = x'0102030405060708'",
        6,
        "the run's row knows 5 events, the history 5",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_history_is_named_and_parks_its_run(file_ledger: Ledger, damage: str) -> None:
    sql, event_id, what = DAMAGES[damage]

    @workflow.defn
    class Steps:
        go = False

        @workflow.run
        async def run(self) -> str:
            await step("charge")
            await step("ship")
            await workflow.wait_condition(lambda: self.go)
            return "done"

        @workflow.signal
        def finish(self) -> None:
            self.go = True

    @workflow.defn
    async def healthy() -> str:
        return "ok"

    async with file_ledger.connect() as client, file_ledger.worker(client, Steps, step):
        handle = await client.start_workflow(Steps, id="order-1")

        async def both_done() -> bool:
            return (await handle.describe()).state.activities_done == 2

        await until(both_done)
    change(file_ledger, sql)
    async with file_ledger.connect() as client, file_ledger.worker(client, Steps, healthy, step):
        handle = client.handle("order-1")
        await handle.signal("finish")
        with pytest.raises(RunBlockedError) as blocked:
            await handle.result()
        assert blocked.value.failure_type == CorruptHistoryError.__name__
        assert f"is damaged at event {event_id}: {what}" in str(blocked.value)
        with pytest.raises(CorruptHistoryError) as caught:
            await handle.history()
        assert (caught.value.event_id, caught.value.run_id) == (event_id, blocked.value.run_id)
        # Nobody else is concerned.
        assert await client.execute_workflow(healthy, id="order-2") == "ok"
        await handle.terminate("restored from a backup elsewhere")
    change(file_ledger, "DELETE FROM pledger_run; DELETE FROM pledger_history")  # for the check at the end


@activity.defn(task_queue="elsewhere")
async def step_elsewhere() -> str:
    return "done"


@workflow.defn
async def goes_elsewhere() -> str:
    return await step_elsewhere()


async def test_a_damaged_start_parks_its_run(file_ledger: Ledger) -> None:
    async with file_ledger.connect() as client:
        handle = await client.start_workflow(fragile, "", id="order-1")
        change(file_ledger, "UPDATE pledger_message SET body = CAST('changed' AS BLOB)")
        healthy = await client.start_workflow(fragile, "", id="order-2")
        async with file_ledger.worker(client, fragile):
            with pytest.raises(RunBlockedError, match="its start is damaged") as blocked:
                await handle.result()
            assert blocked.value.failure_type == CorruptHistoryError.__name__
            assert await healthy.result() == "done"


async def test_a_damaged_outcome_parks_its_run_and_holds_up_no_mail_of_others(file_ledger: Ledger) -> None:
    async with file_ledger.connect() as client, file_ledger.worker(client, goes_elsewhere, step_elsewhere):
        handle = await client.start_workflow(goes_elsewhere, id="order-1")
        change(
            file_ledger,
            "UPDATE pledger_task SET state = 'done', outcome = CAST('changed' AS BLOB);"
            "INSERT INTO pledger_wake SELECT run_key FROM pledger_run",
        )
        with pytest.raises(RunBlockedError, match=r"the outcome of 'step_elsewhere' \(event 2\) is damaged"):
            await handle.result()
        healthy = await client.start_workflow(goes_elsewhere, id="order-2")
        async with file_ledger.connect() as other, file_ledger.worker(other, step_elsewhere, task_queue="elsewhere"):
            assert await healthy.result() == "done"


@pytest.mark.parametrize("body", ["CAST(replace(CAST(body AS TEXT), '17', '71') AS BLOB)", "substr(body, 2)"])
async def test_a_damaged_end_is_not_told(file_ledger: Ledger, body: str) -> None:
    """The result of a closed run comes from one row: a client must not be given what is not the record."""

    @workflow.defn
    async def answer() -> str:
        return "1717"

    async with file_ledger.connect() as client, file_ledger.worker(client, answer):
        assert await client.execute_workflow(answer, id="order-1") == "1717"
    change(file_ledger, f"UPDATE pledger_history SET body = {body}")
    async with file_ledger.connect() as client:
        with pytest.raises(CorruptHistoryError, match="is damaged at event 1"):
            await client.handle("order-1").result()
    change(file_ledger, "DELETE FROM pledger_run; DELETE FROM pledger_history")  # for the check at the end


class UntellableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


async def test_a_bug_without_a_text_blocks_its_own_run_only(ledger: Ledger) -> None:
    @workflow.defn
    async def bad() -> None:
        await asyncio.sleep(0.02)
        raise UntellableError

    @workflow.defn
    async def good() -> str:
        await asyncio.sleep(0.02)
        return "ok"

    ledger.replay_at_end = False
    async with ledger.connect() as client, ledger.worker(client, bad, good):
        handles = [
            await client.start_workflow(code, id=f"{code.__name__}-{n}") for n in range(3) for code in (bad, good)
        ]
        for handle in handles[1::2]:
            assert await handle.result() == "ok"
        for handle in handles[::2]:
            with pytest.raises(RunBlockedError) as blocked:
                await handle.result()
            assert blocked.value.failure_type == "UntellableError"


async def test_a_verification_that_raises_does_not_disturb_the_end_of_its_worker(ledger: Ledger) -> None:
    runs: list[int] = []

    @workflow.defn
    async def once() -> str:
        runs.append(1)
        if len(runs) > 1:
            raise ValueError("the second time")
        return "ok"

    ledger.replay_at_end = False
    async with ledger.connect() as client:
        async with ledger.worker(client, once):
            assert await client.execute_workflow(once, id="order-1") == "ok"
            await until(lambda: len(runs) > 1)
        assert await client.workers() == ()


# Damage to rows in the queue ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [False, True], ids=["in time", "overdue"])
async def test_a_damaged_row_in_the_queue_ends_its_activity_and_no_others(file_ledger: Ledger, late: bool) -> None:
    @activity.defn(task_queue="far")
    async def charge(order: str) -> str:
        return f"charged {order}"

    @workflow.defn
    async def fulfil(order: str) -> str:
        return await charge(order)

    async with file_ledger.connect() as client, file_ledger.worker(client, fulfil):
        store = client.internals.store
        handles = [await client.start_workflow(fulfil, each, id=each) for each in ("damaged", "a", "b")]
        keys = [(await store.find_run("default", each.workflow_id)).run_key for each in handles]

        async def queued() -> bool:
            return all([await store.read_tasks(key) for key in keys])

        await until(queued)
        damage = "command = x'c1', expires_ms = 1" if late else "command = x'c1'"
        change(file_ledger, f"UPDATE pledger_task SET {damage} WHERE run_key = {keys[0]}")
        if late:
            with pytest.raises(WorkflowFailedError, match="the ledger's row of attempt 1 is damaged"):
                await handles[0].result()
        async with file_ledger.worker(client, charge, task_queue="far", max_concurrent_activities=1):
            assert [await each.result() for each in handles[1:]] == ["charged a", "charged b"]
            with pytest.raises(WorkflowFailedError, match="the ledger's row of attempt 1 is damaged"):
                await handles[0].result()
