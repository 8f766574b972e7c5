"""What a run knows of itself, its logger, its bounds, and the ways around the rules."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pledger import activity, workflow
from pledger.errors import ForbiddenCallError, UsageError
from pledger.machine import guards
from pledger.machine.context import PENDING_ACTIVITIES_MAX
from tests.unit.machine.harness import START_MS, DrivenRun, completed, signal

Drive = Callable[..., DrivenRun]


@activity.defn
async def step(number: int) -> int:
    return number


# Itself ---------------------------------------------------------------------------------------------------------------


def test_a_run_knows_who_it_is(drive: Drive) -> None:
    @workflow.defn(name="fulfil")
    async def fulfil() -> list[Any]:
        await asyncio.sleep(60)
        info = workflow.info()
        return [
            info.namespace,
            info.workflow_id,
            info.run_id,
            info.workflow_type,
            info.task_queue,
            info.start_time.isoformat(),
            info.history_length,
            workflow.in_workflow(),
        ]

    run = drive(fulfil)
    run.start()
    run.fire(60_000)
    started = datetime.fromtimestamp(START_MS / 1000, UTC).isoformat()
    # Start, timer started, timer fired: the inputs of the present transition are counted.
    assert run.result == ["default", "order-7421", "01J9X", "fulfil", "default", started, 3, True]


def test_time_is_the_transitions_and_has_a_zone(drive: Drive) -> None:
    @workflow.defn
    async def tells() -> list[Any]:
        times = [workflow.now(), workflow.now()]
        await workflow.sleep(timedelta(seconds=1.5))
        times.append(workflow.now())
        return [*times, workflow.time(), asyncio.get_running_loop().time()]

    run = drive(tells)
    run.start()
    run.fire(1_500)
    began, ended = (datetime.fromtimestamp(ms / 1000, UTC) for ms in (START_MS, START_MS + 1_500))
    assert run.result[:3] == [began, began, ended]
    assert run.result[3:] == [(START_MS + 1_500) / 1000] * 2


def test_signals_and_steps_do_not_move_time(drive: Drive) -> None:
    @workflow.defn
    class Tells:
        def __init__(self) -> None:
            self.times: list[float] = []

        @workflow.run
        async def run(self) -> list[float]:
            self.times.append(workflow.time())
            await step(1)
            self.times.append(workflow.time())
            return self.times

        @workflow.signal
        def note(self) -> None:
            self.times.append(workflow.time())

    run = drive(Tells)
    run.start(signal("note"))
    run.now_ms += 10
    run.feed(signal("note"), completed(run.event_id_of("step"), 1))
    assert run.result == [START_MS / 1000] * 2 + [(START_MS + 10) / 1000] * 2


# Its logger -----------------------------------------------------------------------------------------------------------


def test_log_records_carry_the_run_and_are_not_repeated_on_replay(
    drive: Drive, caplog: pytest.LogCaptureFixture
) -> None:
    @workflow.defn
    async def logs() -> None:
        workflow.logger.info("first", extra={"order": "A1"})
        await asyncio.sleep(1)
        workflow.logger.info("second %d", 2)

    run = drive(logs)
    run.replay_at_end = False
    with caplog.at_level(logging.INFO):
        run.start()
        run.reload()
        run.fire(1_000)
        run.replay().destroy()
    assert [record.getMessage() for record in caplog.records] == ["first", "second 2"]
    for record in caplog.records:
        assert record.name == "pledger.workflow"
        assert (record.workflow_id, record.run_id, record.workflow_type) == ("order-7421", "01J9X", "logs")  # type: ignore[attr-defined]
    assert caplog.records[0].order == "A1"  # type: ignore[attr-defined]


def test_outside_of_a_run_the_logger_is_an_ordinary_one(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        workflow.logger.info("outside")
    assert [record.getMessage() for record in caplog.records] == ["outside"]


# Its bounds -----------------------------------------------------------------------------------------------------------


def test_a_run_has_so_many_activities_pending_and_no_more(drive: Drive) -> None:
    @workflow.defn
    async def fans_out() -> str:
        handles = [workflow.start_activity(step, n) for n in range(PENDING_ACTIVITIES_MAX)]
        try:
            workflow.start_activity(step, 0)
        except UsageError as error:
            refused = str(error)
        handles[0].cancel()
        workflow.start_activity(step, 0)
        return refused

    run = drive(fans_out)
    run.start()
    assert run.result == (
        "workflow 'order-7421' (fans_out, run 01J9X) has 10000 activities pending, the bound of one run; "
        "wait for some before scheduling more"
    )


def test_what_is_settled_makes_room(drive: Drive) -> None:
    @workflow.defn
    async def fans_out() -> int:
        first = [workflow.start_activity(step, n) for n in range(PENDING_ACTIVITIES_MAX)]
        await first[0]
        return await step(0)

    run = drive(fans_out)
    run.start()
    assert len(run.complete(2, 0)) == 1
    run.complete(run.event_id_of("step"), 7)
    assert run.result == 7


# Ways around the rules ------------------------------------------------------------------------------------------------


@pytest.fixture
def guarded() -> Any:
    guards.install()
    yield
    guards.uninstall()


@pytest.mark.usefixtures("guarded")
def test_a_guarded_call_blocks_and_is_let_through_where_it_is_asked_for(drive: Drive) -> None:
    @workflow.defn
    async def looks_at_the_clock() -> float:
        return time.time()

    with pytest.raises(ForbiddenCallError, match=r"time\.time\(\) was called in workflow code"):
        drive(looks_at_the_clock).start()

    @workflow.defn
    async def insists() -> bool:
        with workflow.unsafe.guards_off():
            return time.time() > 0

    run = drive(insists)
    run.start()
    assert run.result is True


@pytest.mark.usefixtures("guarded")
def test_a_guarded_call_that_the_code_swallows_blocks_all_the_same(drive: Drive) -> None:
    @workflow.defn
    async def swallows() -> float:
        try:
            return time.time()
        except Exception:  # noqa: BLE001 - what users do
            return 0.0

    with pytest.raises(ForbiddenCallError):
        drive(swallows).start()


def test_code_can_tell_a_replay_from_the_first_time(drive: Drive) -> None:
    told: list[bool] = []

    @workflow.defn
    async def looks() -> None:
        told.append(workflow.unsafe.is_replaying())
        await asyncio.sleep(1)
        told.append(workflow.unsafe.is_replaying())

    run = drive(looks)
    run.replay_at_end = False
    run.start()
    run.reload()
    run.fire(1_000)
    assert told == [False, True, False]
