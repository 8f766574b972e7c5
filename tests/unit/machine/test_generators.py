"""Whose an async generator is: known for as long as it or its run lives, and no longer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from pledger import activity, workflow
from pledger.machine import generators
from tests.unit.machine.harness import DrivenRun

Drive = Callable[..., DrivenRun]


@activity.defn
async def step(name: str) -> str:
    return name


def test_a_run_that_left_memory_owns_no_generator(drive: Drive) -> None:
    kept: list[AsyncIterator[int]] = []

    async def numbers() -> AsyncIterator[int]:
        yield 1
        await asyncio.sleep(1)
        yield 2

    @workflow.defn
    async def counts() -> None:
        kept.append(numbers())
        async for _ in kept[-1]:
            await step("a")

    before = dict(generators._owners)
    run = drive(counts)
    run.start()
    assert len(generators._owners) == len(before) + 1
    run.machine.destroy()
    assert generators._owners == before


def test_finished_generators_are_forgotten_while_the_run_goes_on() -> None:
    class Generator:
        """Stands for one: only its address and its life count."""

    before = len(generators._owners)
    mine = generators.Generators(lambda _: None)
    made = [Generator() for _ in range(1_000)]  # at once, so that no address comes twice
    while made:
        mine.add(made.pop())  # type: ignore[arg-type]
    assert len(generators._owners) - before < 100
    mine.forget()
    assert len(generators._owners) == before
