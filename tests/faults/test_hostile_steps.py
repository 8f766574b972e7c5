"""F16: steps that raise what they like, hang, give back what nobody can keep, fork and exit.

Each is its own activity's business: it fails, visibly, in a bounded number of attempts, and the worker, its other runs
and the ledger go on as before.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import pytest

from pledger import RetryPolicy, activity, errors, workflow
from pledger.history import payloads
from tests.engine.harness import Ledger

TWICE = RetryPolicy(maximum_attempts=2, initial_interval=timedelta(0))


class Untellable(Exception):  # noqa: N818 - not an error of ours
    def __str__(self) -> str:
        raise RuntimeError("no text either")

    __repr__ = __str__


class Bare(BaseException):
    pass


def cyclic() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


def nested(levels: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(levels):
        found = [found]
    return found


def recursion() -> int:
    return recursion() + 1


def throw(error: BaseException) -> NoReturn:
    raise error


#: Of address space, beyond what its process has when the step begins.
GREED_BYTES = 64 * 2**20

#: On the loop it is the user at the keyboard, and ends the program as it does everywhere.
ONLY_IN_A_THREAD = "raises an interrupt"

#: What a step does, and the type that its failure is recorded with.
DEEDS: dict[str, tuple[Callable[[], Any], str]] = {
    "raises": (lambda: throw(ValueError("no")), "ValueError"),
    "raises a group": (lambda: throw(BaseExceptionGroup("all", [ValueError("a"), Bare()])), "BaseExceptionGroup"),
    "raises what is no Exception": (lambda: throw(Bare()), "Bare"),
    "raises what cannot be told": (lambda: throw(Untellable()), "Untellable"),
    ONLY_IN_A_THREAD: (lambda: throw(KeyboardInterrupt()), "KeyboardInterrupt"),
    "raises the end of a generator": (lambda: throw(GeneratorExit()), "GeneratorExit"),
    "raises a million letters": (lambda: throw(ValueError("x" * 1_000_000)), "ValueError"),
    "exits": (lambda: sys.exit(3), "SystemExit"),
    "asks for more memory than there is": (lambda: bytearray(2**60), "MemoryError"),
    "recurses for ever": (recursion, "RecursionError"),
    "gives an oversize result": (lambda: "x" * (payloads.PAYLOAD_BYTES_MAX + 1), "PayloadTooLargeError"),
    "gives an object": (object, "PayloadError"),
    "gives a lock": (threading.Lock, "PayloadError"),
    "gives a generator": (lambda: (n for n in range(3)), "PayloadError"),
    "gives a function": (lambda: print, "PayloadError"),
    "gives a cycle": (cyclic, "PayloadError"),
    "gives deep data": (lambda: nested(payloads.NESTING_MAX + 1), "PayloadError"),
    "gives bottomless data": (lambda: nested(100_000), "PayloadError"),
    "gives a number without end": (lambda: 10**5_000, "PayloadError"),
}


@workflow.defn
async def tells(deed: str, executor: str) -> list[Any]:
    """What the run hears of it, and that it goes on."""
    step = act if executor == "async" else act_in_a_thread
    try:
        return ["no failure", repr(await step(deed))]
    except errors.ActivityError as error:
        cause = error.__cause__
        return [getattr(cause, "type", type(cause).__name__), error.attempt, await harmless()]


@activity.defn(retry_policy=TWICE)
async def act(deed: str) -> Any:
    return DEEDS[deed][0]()


@activity.defn(retry_policy=TWICE)
def act_in_a_thread(deed: str) -> Any:
    return DEEDS[deed][0]()


@activity.defn
async def harmless() -> str:
    return "all is well"


STEPS = [act, act_in_a_thread, harmless]


@pytest.mark.parametrize("executor", ["async", "thread"])
async def test_whatever_a_step_does_is_its_own_failure(ledger: Ledger, executor: str) -> None:
    """All of them at the same time in one worker."""
    deeds = [deed for deed in DEEDS if executor == "thread" or deed != ONLY_IN_A_THREAD]
    async with ledger.connect() as client, ledger.worker(client, tells, *STEPS):
        handles = {deed: await client.start_workflow(tells, deed, executor, id=f"one that {deed}") for deed in deeds}
        told = {deed: await handle.result() for deed, handle in handles.items()}
        # The worker lives, and the ledger is none the worse for it.
        assert await client.count("status = 'completed'") == len(deeds)
        for handle in handles.values():
            assert len((await handle.history()).export()) < 200_000
    for deed, (failure, attempts, after) in told.items():
        assert failure == DEEDS[deed][1], deed
        # What can never be kept is not tried again.
        assert attempts == (1 if failure.startswith("Payload") else 2), deed
        assert after == "all is well"


# Hanging --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["waits", "waits in a thread"])
async def test_a_step_that_hangs_is_given_up_in_time(ledger: Ledger, how: str) -> None:
    """One that will not let itself be stopped is in tests/engine/test_time_outs.py."""
    let_go = threading.Event()
    options: dict[str, Any] = {"start_to_close_timeout": timedelta(milliseconds=30), "retry_policy": TWICE}

    async def waits() -> None:
        await asyncio.Event().wait()

    def waits_in_a_thread() -> None:
        let_go.wait(60)

    hangs: Any = activity.defn(**options)(waits if how == "waits" else waits_in_a_thread)

    @workflow.defn
    async def waits_for_it() -> list[Any]:
        try:
            await hangs()
        except errors.ActivityError as error:
            return [type(error.__cause__).__name__, error.attempt, await harmless()]
        return []

    try:
        async with ledger.connect() as client, ledger.worker(client, waits_for_it, hangs, harmless):
            told = await client.execute_workflow(waits_for_it, id="order-1")
            let_go.set()
    finally:
        let_go.set()
    assert told == ["TimeoutError", 2, "all is well"]


# Forks and exits ------------------------------------------------------------------------------------------------------


def fork_and_exit() -> str:
    """As code does that forks: the child ends without a word to anybody."""
    child = os.fork()
    if child == 0:
        os._exit(7)
    _, status = os.waitpid(child, 0)
    return f"child ended with {os.waitstatus_to_exitcode(status)}"


def fork_by_multiprocessing() -> str:
    process = multiprocessing.get_context("fork").Process(target=int)
    process.start()
    process.join()
    return f"child ended with {process.exitcode}"


def exit_at_once() -> NoReturn:
    os._exit(9)


def kill_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize(
    ("fn", "ended"), [(fork_and_exit, 7), (fork_by_multiprocessing, 0)], ids=["os.fork", "multiprocessing"]
)
@pytest.mark.parametrize("executor", ["async", "thread"])
async def test_a_step_that_forks_leaves_the_ledger_to_its_parent(
    ledger: Ledger, fn: Callable[[], str], ended: int, executor: str
) -> None:
    async def forks_on_the_loop() -> str:
        return fn()

    def forks() -> str:
        return fn()

    step: Any = activity.defn(forks_on_the_loop if executor == "async" else forks)

    @workflow.defn
    async def two_forks() -> list[str]:
        return [await step(), await step(), await harmless()]

    async with ledger.connect() as client, ledger.worker(client, two_forks, step, harmless):
        told = await client.execute_workflow(two_forks, id="order-1")
        # Written and read after the children have gone.
        assert await client.execute_workflow(two_forks, id="order-2") == told
    assert told == [f"child ended with {ended}"] * 2 + ["all is well"]


@activity.defn(executor="process", retry_policy=TWICE)
def exits_its_process() -> NoReturn:
    exit_at_once()


@activity.defn(executor="process", retry_policy=TWICE)
def kills_its_process() -> None:
    kill_itself()


@workflow.defn
async def outlives_its_steps(which: str) -> list[Any]:
    try:
        await (exits_its_process() if which == "exits" else kills_its_process())
    except errors.ActivityError as error:
        return [error.attempt, str(error.__cause__), await harmless()]
    return []


@pytest.mark.parametrize("which", ["exits", "is killed"])
async def test_a_step_that_ends_its_own_process_ends_nothing_else(ledger: Ledger, which: str) -> None:
    steps = [exits_its_process, kills_its_process, harmless]
    async with ledger.connect() as client, ledger.worker(client, outlives_its_steps, *steps):
        attempts, told, after = await client.execute_workflow(outlives_its_steps, which, id="order-1")
    assert (attempts, after) == (2, "all is well")
    assert told.endswith("ended without an answer; its effect is unknown")


# Memory ---------------------------------------------------------------------------------------------------------------


@activity.defn(executor="process", retry_policy=RetryPolicy(maximum_attempts=1))
def eats_memory() -> int:
    """Small pieces, so that at the end there is no room even for a word."""
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + GREED_BYTES, in_use + GREED_BYTES))
    eaten: list[Any] = []
    while True:
        eaten = [eaten, bytearray(4_000)]


@workflow.defn
async def outlives_its_greed() -> list[Any]:
    try:
        return [await eats_memory()]
    except errors.ActivityError as error:
        cause = error.__cause__
        return [getattr(cause, "type", type(cause).__name__), error.attempt, await harmless()]


@pytest.mark.parametrize("ledger", ["sqlite"], indirect=True)
async def test_a_step_that_eats_memory_ends_at_its_processs_limit(ledger: Ledger) -> None:
    """It has a limit of its own; where there is none the system kills the process: that is the step above."""
    async with ledger.connect() as client, ledger.worker(client, outlives_its_greed, eats_memory, harmless):
        told = await client.execute_workflow(outlives_its_greed, id="order-1")
    assert told == ["MemoryError", 1, "all is well"]
