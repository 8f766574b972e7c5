"""Random programs on a PostgreSQL server: live, with workers that stand still while others take over, and replayed.

The simulation runs thousands of them in memory; here a few run beside each other, in real time, so that the store that
a fleet has is under them too. Delays are cut short, which changes nothing of what a program must give.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any, Final

import pytest
from hypothesis import given, settings

from pledger import Client, activity
from pledger.client import WorkflowHandle, WorkflowUpdateStage
from pledger.errors import ApplicationError, RunClosedError, WorkflowFailedError
from pledger.testing import replay
from tests import servers
from tests.engine.harness import Ledger, WorkerProcess, until, worker_process
from tests.properties.programs import CALLS, KEEP_TRYING, PROGRAMS, Interpreter, Program
from tests.properties.test_random_workflows import right_result

#: Programs of one test: of those that are drawn, the largest ones.
DRAWN: Final = 250
BESIDE: Final = 25
#: Of some programs: how a client ends them.
HOW_ENDED: Final = {1: "cancelled", 3: "terminated"}
#: The longest delay of a program, in ms.
SHORT_MS: Final = 30


@activity.defn(name="echo", retry_policy=KEEP_TRYING)
async def echo(number: int) -> int:
    await asyncio.sleep(0.01)
    return number


@activity.defn(name="echo_plainly", retry_policy=KEEP_TRYING)
def echo_plainly(number: int) -> int:
    return number


@activity.defn(name="echo_at_last", retry_policy=KEEP_TRYING)
async def echo_at_last(number: int) -> int:
    if activity.info().attempt <= 2:
        raise ConnectionError("not yet")
    return number


@activity.defn(name="refuse", retry_policy=KEEP_TRYING)
async def refuse(number: int) -> int:
    raise ApplicationError(f"{number} is refused", type="Refused", non_retryable=True)


DEFINITIONS: Final = (Interpreter, echo, echo_plainly, echo_at_last, refuse)


@pytest.fixture(scope="module")
def drawn() -> list[Program]:
    """The same ones in every run, from all over what can be drawn; large ones, since small ones show little. Before any
    worker is there, whose threads would draw in between."""
    programs: list[Program] = []

    @given(PROGRAMS)
    @settings(max_examples=DRAWN, derandomize=True, database=None, deadline=None)
    def draw(program: Program) -> None:
        programs.append(program)

    draw()
    return sorted(map(quick, programs), key=lambda each: len(repr(each)))[-2 * BESIDE :]


def quick(program: Program) -> Program:
    kind, *rest = program
    if kind in {"sleep", "expiring", "stopped"}:
        rest[-1] = min(rest[-1], SHORT_MS)
    return [kind, *(quick(each) if isinstance(each, list) else each for each in rest)]


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with servers.schema() as url:
        yield Ledger(url)


async def run(client: Client, number: int, program: Program) -> tuple[Any, Any]:
    """What it gives, and what it must give; its history is replayed."""
    handle = await client.start_workflow(Interpreter, program, id=f"program-{number}")
    with contextlib.suppress(RunClosedError):  # many do not wait for any
        for call in range(CALLS):
            if (call + number) % 2:
                await handle.signal(Interpreter.call, call, message_id=f"call-{call}")
            else:
                await handle.start_update(
                    Interpreter.ring, call, id=f"ring-{call}", wait_for_stage=WorkflowUpdateStage.ACCEPTED
                )
    if (how := HOW_ENDED.get(number % 5)) is not None:
        await asyncio.sleep(number * 0.003)
        with contextlib.suppress(RunClosedError):
            await (handle.cancel("enough") if how == "cancelled" else handle.terminate("enough"))
    result, right = await _end(handle, how), right_result(program)
    history = await handle.history()
    assert replay(history, Interpreter) == len(history.events)
    # What cancelled code gives is its own business.
    is_told = any(each.type == "CancelRequested" for each in history.events)
    return result, result if result == how or is_told else right


async def _end(handle: WorkflowHandle[Any], how: str | None) -> Any:
    """Its result, or how it was ended."""
    try:
        return await handle.result()
    except WorkflowFailedError as error:
        if error.status != how:
            raise
        return how


async def run_all(client: Client, programs: list[Program]) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run(client, number, each)) for number, each in enumerate(programs)]
    for program, task in zip(programs, tasks, strict=True):
        result, right = task.result()
        assert result == right, program


def test_programs_give_what_they_must(drawn: list[Program], ledger: Ledger) -> None:
    async def live() -> None:
        async with ledger.connect() as client, ledger.worker(client, *DEFINITIONS):
            await run_all(client, drawn[::2])

    asyncio.run(live())


def test_programs_give_the_same_while_their_workers_stand_still(drawn: list[Program], ledger: Ledger) -> None:
    """Each of two workers in turn, until the other one has buried it; then it wakes, and nothing is its own."""

    async def is_buried(client: Client, sessions: set[int]) -> bool:
        return not sessions & {each.session_key for each in await client.workers()}

    async def trouble(client: Client, victims: list[WorkerProcess]) -> None:
        for victim in victims:
            mine = {engine.session.key for engine in victim.client.internals.engines}
            victim.freeze()
            await until(lambda mine=mine: is_buried(client, mine))
            victim.thaw()

    async def live(one: WorkerProcess, other: WorkerProcess) -> None:
        async with ledger.connect() as client, asyncio.TaskGroup() as group:
            group.create_task(trouble(client, [one, other, one]))
            group.create_task(run_all(client, drawn[1::2]))

    with worker_process(ledger, *DEFINITIONS) as one, worker_process(ledger, *DEFINITIONS) as other:
        asyncio.run(live(one, other))
