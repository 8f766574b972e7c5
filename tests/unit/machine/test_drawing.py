"""`workflow.uuid4` and `workflow.random`: keyed by who draws where, so that one more draw elsewhere shifts nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from pledger import activity, workflow
from tests.unit.machine.harness import SEED, DrivenRun, scheduled

Drive = Callable[..., DrivenRun]


@activity.defn
async def step(name: str) -> str:
    return name


async def pay() -> str:
    return str(workflow.uuid4())


async def mail() -> str:
    return str(workflow.uuid4())


def draw_both() -> list[str]:
    return [str(workflow.uuid4()), str(workflow.uuid4())]


def result_of(drive: Drive, code: Callable[..., Any], **options: Any) -> Any:
    run = drive(workflow.defn(code), **options)
    run.start()
    return run.result


def test_the_same_run_draws_the_same_and_another_run_does_not(drive: Drive) -> None:
    async def draws() -> list[str]:
        return [*draw_both(), str(workflow.random().random())]

    first, again = result_of(drive, draws), result_of(drive, draws)
    other = result_of(drive, draws, seed=SEED[::-1])
    assert first == again
    assert len({*first, *other}) == 6


def test_a_draw_in_another_function_shifts_nothing(drive: Drive) -> None:
    async def before() -> str:
        return await mail()

    async def after() -> str:
        await pay()
        workflow.random().random()
        return await mail()

    assert result_of(drive, before) == result_of(drive, after)


def test_a_draw_in_another_task_shifts_nothing(drive: Drive) -> None:
    async def before() -> str:
        return (await asyncio.gather(mail()))[0]

    async def after() -> str:
        return (await asyncio.gather(mail(), mail(), mail()))[0]

    assert result_of(drive, before) == result_of(drive, after)


def test_moving_a_draw_to_another_line_shifts_nothing(drive: Drive) -> None:
    async def before() -> str:
        return await mail()

    async def after() -> str:
        for _ in range(3):
            await asyncio.sleep(0)

        return await mail()

    assert result_of(drive, before) == result_of(drive, after)


def test_a_named_draw_survives_moving_into_another_function_and_task(drive: Drive) -> None:
    async def before() -> str:
        return str(workflow.uuid4("payment"))

    async def elsewhere() -> str:
        return str(workflow.uuid4("payment"))

    async def after() -> str:
        await pay()
        return await asyncio.create_task(elsewhere())

    assert result_of(drive, before) == result_of(drive, after)


def test_draws_of_one_place_differ_from_each_other(drive: Drive) -> None:
    async def draws() -> list[str]:
        return [str(workflow.uuid4()) for _ in range(10)] + [str(workflow.uuid4("named")) for _ in range(10)]

    assert len(set(result_of(drive, draws))) == 20


def test_equal_tasks_draw_apart(drive: Drive) -> None:
    async def draws() -> list[str]:
        return list(await asyncio.gather(*(mail() for _ in range(10))))

    assert len(set(result_of(drive, draws))) == 10


def test_a_generator_is_one_of_its_own(drive: Drive) -> None:
    """How much is drawn from one moves no other."""
    greedy = {"is": False}

    async def draws() -> list[float]:
        first, second = workflow.random(), workflow.random()
        if greedy["is"]:
            first.shuffle(list(range(100)))
        return [first.random(), second.random()]

    modest = result_of(drive, draws)
    greedy["is"] = True
    both = result_of(drive, draws)
    assert (modest[0] != both[0], modest[1]) == (True, both[1])


def test_signal_handlers_may_draw(drive: Drive) -> None:
    @workflow.defn
    class Draws:
        def __init__(self) -> None:
            self.drawn: list[str] = []

        @workflow.run
        async def run(self) -> list[str]:
            await workflow.wait_condition(lambda: len(self.drawn) == 2)
            return self.drawn

        @workflow.signal
        def plain(self) -> None:
            self.drawn.append(str(workflow.uuid4()))

        @workflow.signal
        async def later(self) -> None:
            self.drawn.append(str(workflow.uuid4()))

    run = drive(Draws)
    run.start()
    run.signal("plain")
    run.reload()
    run.signal("later")
    assert len(set(run.result)) == 2


def test_ids_drawn_before_a_reload_are_drawn_again(drive: Drive) -> None:
    @workflow.defn
    async def pays() -> list[str]:
        paid = await step(f"pay {workflow.uuid4()}")
        return [paid, await step(f"mail {workflow.uuid4()}")]

    run = drive(pays)
    run.start()
    run.reload()
    run.complete(2, "paid")
    expected = scheduled(run.events)
    again = drive(pays)
    again.start()
    again.complete(2, "paid")
    assert scheduled(again.events) == expected


@pytest.mark.parametrize("draw", [workflow.uuid4, workflow.random])
def test_drawing_records_nothing(drive: Drive, draw: Callable[[], object]) -> None:
    @workflow.defn
    async def draws() -> None:
        draw()
        await asyncio.sleep(1)

    assert len(drive(draws).start()) == 1
