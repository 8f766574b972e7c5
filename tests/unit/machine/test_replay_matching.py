"""Matching on replay: what pairs a recorded command with one that the code asks for, and what is a mismatch."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable

import msgspec
import pytest

from pledger import activity, workflow
from pledger.errors import NondeterminismError
from pledger.history import events, payloads
from pledger.history.transition import FORMAT, Transition
from tests.unit.machine.harness import START_MS, DrivenRun, completed, scheduled

Drive = Callable[..., DrivenRun]


@activity.defn
async def charge_card(order: str) -> str:
    return order


@activity.defn
async def reserve_stock(order: str) -> str:
    return order


def with_first_commands(run: DrivenRun, *commands: events.Command) -> None:
    """Record the first transition as if its commands had been asked for in this order."""
    first = run.transitions[0]
    run.transitions[0] = Transition(FORMAT, first.time_ms, None, first.inputs, commands)


# What pairs -----------------------------------------------------------------------------------------------------------


def test_order_inside_a_transition_carries_no_meaning(drive: Drive) -> None:
    @workflow.defn
    async def both() -> list[str]:
        return await asyncio.gather(charge_card("a"), reserve_stock("b"))

    run = drive(both)
    first, second = run.start()
    with_first_commands(run, second, first)

    again = run.replay()
    # Event 2 is the reservation now, as recorded, and its result goes to whoever asked for the reservation.
    _, commands = again.activate([completed(2, "reserved"), completed(3, "charged")], time_ms=START_MS)
    assert commands == [events.CompleteRun(b'["charged","reserved"]')]
    again.destroy()


def test_equal_commands_of_one_task_pair_in_the_order_of_asking(drive: Drive) -> None:
    @workflow.defn
    async def thrice() -> list[str]:
        handles = [workflow.start_activity(charge_card, "a") for _ in range(3)]
        return [await handle for handle in handles]

    run = drive(thrice)
    run.start()
    run.feed(completed(2, "first"), completed(3, "second"))
    run.reload()
    run.complete(4, "third")
    assert run.result == ["first", "second", "third"]


def test_equal_commands_of_several_tasks_pair_by_spawn_path(drive: Drive) -> None:
    """A task that starts another one first asks later than its sibling; the path, not the order, tells them apart."""

    async def nested() -> str:
        return await asyncio.create_task(step())

    async def step() -> str:
        return await charge_card("a")

    @workflow.defn
    async def three() -> list[str]:
        return await asyncio.gather(nested(), step(), nested())

    run = drive(three)
    run.start()
    results = {event_id: f"result of event {event_id}" for event_id in (2, 3, 4)}
    run.feed(*(completed(event_id, result) for event_id, result in results.items()))
    # Paths (0, 0, 0), (0, 1) and (0, 2, 0): the order in which gather lists them.
    assert run.result == [results[2], results[3], results[4]]


def test_equal_commands_of_several_tasks_keep_their_results_after_a_reload(drive: Drive) -> None:
    async def nested() -> str:
        return await asyncio.create_task(step())

    async def step() -> str:
        return await charge_card("a")

    @workflow.defn
    async def three() -> list[str]:
        return await asyncio.gather(nested(), step(), nested())

    run = drive(three)
    run.start()
    run.reload()
    run.feed(completed(4, "third"), completed(2, "first"), completed(3, "second"))
    assert run.result == ["first", "second", "third"]


def test_RPL_08_changed_input_of_a_step_is_no_mismatch(drive: Drive) -> None:
    wall_clock = {"now": "2026-08-03T10:00:00Z"}

    @workflow.defn
    async def monitor() -> str:
        return await charge_card(wall_clock["now"])

    run = drive(monitor)
    run.start()
    wall_clock["now"] = "2026-08-04T00:00:00Z"
    run.reload()
    assert scheduled(run.events) == [("charge_card", "2026-08-03T10:00:00Z")]
    run.complete(2, "late: 0")
    assert run.result == "late: 0"


@pytest.mark.parametrize("what", ["input", "delay", "result"])
def test_the_code_that_made_the_record_must_give_the_same_values(drive: Drive, what: str) -> None:
    seen: list[int] = []

    @workflow.defn
    async def counts() -> int:
        seen.append(1)  # what no history holds
        match what:
            case "input":
                await charge_card(f"order {len(seen)}")
            case "delay":
                await asyncio.sleep(len(seen))
        return len(seen)

    run = drive(counts)
    run.replay_at_end = False
    run.start()
    run.transitions[0] = msgspec.structs.replace(run.transitions[0], code="v1")
    run.replay().destroy()  # an input that has changed is no change of the sequence, as any code may have changed it
    run.replay(own_code="v2").destroy()
    with pytest.raises(NondeterminismError, match="gives other values at event 2") as caught:
        run.replay(own_code="v1")
    recorded, replayed = {
        "input": (
            "ScheduleActivity 'charge_card' with [\"order 1\"]",
            "ScheduleActivity 'charge_card' with [\"order 4\"]",
        ),
        "delay": ("StartTimer of 1 s", "StartTimer of 4 s"),
        "result": ("CompleteRun with 1", "CompleteRun with 4"),
    }[what]
    assert (caught.value.recorded, caught.value.replayed) == (recorded, replayed)


def test_RPL_08_changed_inputs_of_several_steps_keep_their_places(drive: Drive) -> None:
    """The inputs no longer tell the steps apart, so the spawn paths do: no step gets its neighbour's result."""
    day = {"is": "monday"}

    async def nested(name: str) -> str:
        return await asyncio.create_task(step(name))

    async def step(name: str) -> str:
        result = await charge_card(f"{name} on {day['is']}")
        return f"{name}: {result}"

    @workflow.defn
    async def three() -> list[str]:
        return await asyncio.gather(nested("a"), step("b"), nested("c"))

    run = drive(three)
    commands = run.start()
    owner_of = {2 + n: args.split()[0] for n, (_, args) in enumerate(scheduled(commands))}
    day["is"] = "tuesday"
    run.reload()
    run.feed(*(completed(event_id, f"result of {owner}") for event_id, owner in owner_of.items()))
    assert run.result == ["a: result of a", "b: result of b", "c: result of c"]


def test_RPL_08_changed_inputs_of_one_task_keep_their_places(drive: Drive) -> None:
    day = {"is": "monday"}

    @workflow.defn
    async def two() -> list[str]:
        first, second = (workflow.start_activity(charge_card, f"{n} on {day['is']}") for n in (1, 2))
        return [await first, await second]

    run = drive(two)
    run.start()
    day["is"] = "tuesday"
    run.reload()
    run.feed(completed(2, "first"), completed(3, "second"))
    assert run.result == ["first", "second"]


def test_a_changed_result_of_the_run_is_no_mismatch(drive: Drive) -> None:
    answer = {"is": 1}

    @workflow.defn
    async def answers() -> int:
        return answer["is"]

    run = drive(answers)
    run.start()
    answer["is"] = 2
    again = run.replay()
    assert again.last_event == 2
    again.destroy()


# What does not --------------------------------------------------------------------------------------------------------


def mismatch(run: DrivenRun, code: Callable[..., object]) -> NondeterminismError:
    with pytest.raises(NondeterminismError) as caught:
        run.replay(code)
    return caught.value


def line_of(code: Callable[..., object], text: str) -> int:
    lines, first = inspect.getsourcelines(code)
    return first + next(n for n, line in enumerate(lines) if text in line)


@pytest.fixture
def charged(drive: Drive) -> DrivenRun:
    """A run that has asked for charge_card."""

    @workflow.defn(name="fulfil")
    async def fulfil() -> str:
        return await charge_card("a")

    run = drive(fulfil)
    run.start()
    return run


def test_another_step_is_a_mismatch_that_says_what_where_and_what_to_do(charged: DrivenRun) -> None:
    @workflow.defn(name="fulfil")
    async def fulfil() -> str:
        return await reserve_stock("a")

    error = mismatch(charged, fulfil)
    line = line_of(fulfil, "reserve_stock")
    function = f"{inspect.currentframe().f_code.co_name}.<locals>.fulfil"  # type: ignore[union-attr]
    assert str(error) == (
        "workflow 'order-7421' (fulfil, run 01J9X) is blocked at event 2\n"
        "  recorded  ScheduleActivity 'charge_card'\n"
        f"  replayed  ScheduleActivity 'reserve_stock'   test_replay_matching.py:{line}, in {function}\n"
        "The code changed while this run was open; nothing is lost. Roll back, or guard the new branch with\n"
        "workflow.patched('reserve-stock-added'). To see the first difference: pledger replay order-7421"
    )
    assert error.event_id == 2
    assert error.recorded == "ScheduleActivity 'charge_card'"
    assert error.replayed == "ScheduleActivity 'reserve_stock'"
    assert error.where == f"test_replay_matching.py:{line}, in {function}"


def test_a_missing_command_is_a_mismatch(charged: DrivenRun) -> None:
    @workflow.defn(name="fulfil")
    async def fulfil() -> None:
        await asyncio.Event().wait()

    error = mismatch(charged, fulfil)
    assert (error.event_id, error.recorded, error.replayed) == (2, "ScheduleActivity 'charge_card'", None)
    assert "  replayed  nothing\n" in str(error)


def test_an_additional_command_is_a_mismatch(charged: DrivenRun) -> None:
    @workflow.defn(name="fulfil")
    async def fulfil() -> list[str]:
        return await asyncio.gather(charge_card("a"), reserve_stock("a"))

    error = mismatch(charged, fulfil)
    assert (error.event_id, error.recorded, error.replayed) == (3, None, "ScheduleActivity 'reserve_stock'")
    assert error.where is not None
    assert error.where.startswith(f"test_replay_matching.py:{line_of(fulfil, 'gather')}, ")
    assert "  recorded  nothing more\n" in str(error)


def test_one_more_of_the_same_is_a_mismatch(charged: DrivenRun) -> None:
    @workflow.defn(name="fulfil")
    async def fulfil() -> list[str]:
        return await asyncio.gather(charge_card("a"), charge_card("a"))

    assert mismatch(charged, fulfil).event_id == 3


def test_a_run_that_ends_earlier_than_recorded_is_a_mismatch(charged: DrivenRun) -> None:
    @workflow.defn(name="fulfil")
    async def fulfil() -> str:
        return "done"

    error = mismatch(charged, fulfil)
    assert (error.recorded, error.replayed) == ("ScheduleActivity 'charge_card'", "CompleteRun")


def test_a_run_that_goes_on_where_its_end_is_recorded_is_a_mismatch(drive: Drive) -> None:
    @workflow.defn(name="fulfil")
    async def short() -> str:
        return "done"

    @workflow.defn(name="fulfil")
    async def longer() -> str:
        return await charge_card("a")

    run = drive(short)
    run.start()
    error = mismatch(run, longer)
    assert (error.recorded, error.replayed) == ("CompleteRun", "ScheduleActivity 'charge_card'")


def test_failing_where_completing_is_recorded_is_a_mismatch(drive: Drive) -> None:
    @workflow.defn(name="fulfil")
    async def short() -> str:
        return "done"

    @workflow.defn(name="fulfil")
    async def failing() -> str:
        raise TimeoutError("too late")

    run = drive(short)
    run.start()
    assert mismatch(run, failing).replayed == "FailRun with TimeoutError"


def test_the_end_of_the_code_before_the_last_recorded_input_is_a_mismatch(drive: Drive) -> None:
    """Recorded is a run that took two completions in one transition; the new code has enough of the first."""

    @workflow.defn(name="fulfil")
    async def both() -> list[str]:
        return await asyncio.gather(charge_card("a"), charge_card("b"))

    @workflow.defn(name="fulfil")
    async def either() -> str:
        handles = [workflow.start_activity(charge_card, order) for order in "ab"]
        await asyncio.wait(handles, return_when=asyncio.FIRST_COMPLETED)
        return "enough"

    run = drive(both)
    run.start()
    run.feed(completed(2, "a"), completed(3, "b"))
    error = mismatch(run, either)
    assert error.recorded == "ActivityCompleted, while the run went on"
    assert error.replayed == "CompleteRun"


def test_a_longer_timer_is_the_same_timer(drive: Drive) -> None:
    hours = {"wait": 1}

    @workflow.defn
    async def waits() -> str:
        await asyncio.sleep(3600 * hours["wait"])
        return "rested"

    run = drive(waits)
    run.start()
    hours["wait"] = 2
    run.reload()
    # The record holds: the timer fires when it was going to.
    assert run.machine.next_timer_ms() == START_MS + 3_600_000
    run.fire(3_600_000)
    assert run.result == "rested"


def test_a_mismatch_names_the_wait_of_a_timer(drive: Drive) -> None:
    @workflow.defn(name="fulfil")
    async def waits() -> None:
        await asyncio.sleep(90)

    @workflow.defn(name="fulfil")
    async def acts() -> str:
        return await charge_card("a")

    run = drive(waits)
    run.start()
    assert mismatch(run, acts).recorded == "StartTimer of 90 s"


def test_no_mismatch_changes_what_is_recorded(charged: DrivenRun) -> None:
    @workflow.defn(name="fulfil")
    async def fulfil() -> str:
        return await reserve_stock("a")

    before = list(charged.transitions)
    mismatch(charged, fulfil)
    assert charged.transitions == before
    # Rolling back un-blocks it.
    charged.reload()
    charged.complete(2, payloads.decode(b'"ok"'))
    assert charged.result == "ok"


def test_code_that_ends_before_the_last_input_is_told_where_the_record_goes_on(drive: Drive) -> None:
    goes_on = {"is": True}

    @workflow.defn
    async def fulfil() -> None:
        await asyncio.wait([charge_card("a"), reserve_stock("b")], return_when=asyncio.FIRST_COMPLETED)
        if goes_on["is"]:
            await asyncio.sleep(0)
            await charge_card("c")

    run = drive(fulfil)
    run.replay_at_end = False
    run.start()
    run.feed(completed(2, "charged"), completed(3, "reserved"))  # events 4 and 5; what follows is event 6
    goes_on["is"] = False
    with pytest.raises(NondeterminismError) as caught:
        run.replay()
    assert "is blocked at event 6\n  recorded  ScheduleActivity 'charge_card'\n  replayed  CompleteRun" in str(
        caught.value
    )
