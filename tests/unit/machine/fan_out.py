"""Workflows that wait on sets of tasks, and a program that replays their histories: for `test_hashes.py`.

    python -m tests.unit.machine.fan_out < exported-histories

takes a JSON object of histories by workflow and prints what the code asks for, transition by transition.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from pledger import activity, workflow
from pledger.errors import ActivityError
from pledger.history import view
from tests.unit.machine.harness import DrivenRun, scheduled


@activity.defn
async def step(name: str) -> str:
    return name


@workflow.defn
async def waits_on_sets() -> list[str]:
    """The standard library's `wait` gives sets; what follows must not depend on where in memory their items lie."""
    taken = []
    for names in ("abc", "def"):
        tasks = {asyncio.create_task(step(name), name=name) for name in names}
        while tasks:
            done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            taken += [await step(f"took {task.get_name()}") for task in done]
        taken += [task.get_name() for task in {asyncio.create_task(step(name), name=name) for name in "xyz"}]
    return taken


@workflow.defn
async def gathers_in_sets() -> list[str]:
    """Futures that gather makes are of a class of its own."""
    gathered = {asyncio.gather(step(first), step(second)): first + second for first, second in ("ab", "cd", "ef", "gh")}
    done, _ = await asyncio.wait(gathered)
    return [await step(gathered[one]) for one in done]


@workflow.defn
async def aborts_a_group() -> list[str]:
    """A task group aborts its tasks in the order of a set; each of them cleans up by a step."""
    cleaned = []

    async def work(name: str) -> None:
        try:
            await step(name)
        except asyncio.CancelledError:
            cleaned.append(await step(f"clean up {name}"))
            raise

    try:
        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(work(f"{number:02}"))
    except* ActivityError:
        pass
    return cleaned


@workflow.defn
async def posts_as_completed() -> list[str]:
    return [
        await step(f"post {await one}") async for one in workflow.as_completed([step(f"{n:02}") for n in range(20)])
    ]


WORKFLOWS: dict[str, Callable[..., Any]] = {
    each.__name__: each for each in (waits_on_sets, gathers_in_sets, aborts_a_group, posts_as_completed)
}


def asked_again(name: str, history: bytes) -> list[str]:
    """What this process asks for, on replay and live."""
    _, transitions = view.read_export(history)
    again = DrivenRun(WORKFLOWS[name])
    replayed = again.replay(transitions=transitions)
    replayed.destroy()
    # The same inputs once more, live: not only do the commands pair up, they come in the same order.
    for transition in transitions:
        again.now_ms = transition.time_ms
        again.feed(*transition.inputs)
    return asked(again)


def asked(run: DrivenRun) -> list[str]:
    return [str(scheduled(transition.commands)) for transition in run.transitions]


if __name__ == "__main__":
    dummies = [object() for _ in range(10_000)]
    histories = msgspec.json.decode(sys.stdin.buffer.read(), type=dict[str, msgspec.Raw])
    for name, history in histories.items():
        print(name, *asked_again(name, bytes(history)), sep="\n")  # noqa: T201 - its answer
