"""What the workloads ask of an engine. An adapter is a subclass; it runs in the engine's own environment."""

import abc
import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Place:
    """Where an engine keeps what it is told.

    directory: its own; what a killed process left there is found again by the next one.
    postgres: URL of a server without the name of a database, and `postgres_pid` its process; None where it has none.
    ports: free ones on 127.0.0.1, the same ones for all processes of the directory.
    variant: a word that the adapter understands.
    """

    directory: Path
    ports: tuple[int, ...] = ()
    postgres: str | None = None
    postgres_pid: int | None = None
    variant: str = ""

    @property
    def database(self) -> str:
        """Name of a database of its own on the PostgreSQL server."""
        return self.directory.name.replace("-", "_").lower()


class Rival(abc.ABC):
    """One engine with its client and its worker.

    Steps do nothing but note when they ran and return a small value. Methods wait until what they ask for is durable,
    as far as the engine's interface says so.

    settle_s: how long it may take to write down and to tidy up what its last step left. watched_s: for how long its
    sleepers are watched.
    """

    settle_s = 2.0
    watched_s = 5.0

    def __init__(self, place: Place) -> None:
        self.place = place

    @abc.abstractmethod
    async def up(self) -> None:
        """Start on whatever is in the directory."""

    @abc.abstractmethod
    async def down(self) -> None: ...

    @abc.abstractmethod
    async def run_sequence(self, steps: int) -> None:
        """One workflow of so many steps one after another, from start to result."""

    @abc.abstractmethod
    async def fan_out(self, width: int) -> None:
        """One workflow of so many steps at once, from start to result."""

    @abc.abstractmethod
    async def start_waiter(self, workflow_id: str) -> None:
        """Start a workflow that waits for one message and returns it."""

    @abc.abstractmethod
    async def signal(self, workflow_id: str) -> None:
        """Send it the message."""

    @abc.abstractmethod
    async def waiter_result(self, workflow_id: str) -> None: ...

    @abc.abstractmethod
    async def start_sleeper(self, workflow_id: str, seconds: float) -> None:
        """Start a workflow of two steps, a durable sleep, and two steps."""

    @abc.abstractmethod
    async def asleep(self) -> int:
        """How many sleepers have made their last step before the sleep, in processes of the present `up`."""

    @abc.abstractmethod
    async def open_sleepers(self) -> int:
        """How many sleepers have not ended; one is as good as many."""

    @abc.abstractmethod
    async def step_times(self) -> list[float]:
        """When each step ran since `up`, by the monotonic clock of the system."""

    def disk_bytes(self) -> int:
        """What it has on disk."""
        files = (Path(folder) / name for folder, _, names in os.walk(self.place.directory) for name in names)
        return sum(file.lstat().st_size for file in files if file.exists())

    async def counters(self) -> dict[str, float]:
        """What the engine's database counts by itself: `fsyncs`, `transactions`; empty where it does not."""
        return {}


class FleetRival(Rival):
    """One that can also be several processes, and clear up: what W10 to W13 ask for, on top.

    work_s: what an activity of a tenant takes; rest_s: between two of the quiet one. ahead_s, due_within_s: how far
    ahead timers are at least, and within what time all of them are due.
    """

    work_s = 0.005
    rest_s = 0.02
    ahead_s = 3.0
    due_within_s = 1.0

    @abc.abstractmethod
    async def serve(self) -> None:
        """Instead of `up`: be the process that makes the activities of `run_remote`, and nothing else."""

    @abc.abstractmethod
    async def run_remote(self, activities: int) -> list[float]:
        """One workflow of so many activities one after another, all made by the process that serves; how many
        milliseconds each has waited before it began."""

    @abc.abstractmethod
    async def start_timer(self, workflow_id: str, due_s: float) -> None:
        """Start a workflow that sleeps until then, by the clock of the system, and ends."""

    @abc.abstractmethod
    async def timer_result(self, workflow_id: str) -> None: ...

    @abc.abstractmethod
    def shared(self, slots: int) -> AbstractAsyncContextManager[None]:
        """Within the block, serve a queue of all tenants, so many activities at a time."""

    @abc.abstractmethod
    async def run_tenant(self, tenant: str, width: int) -> list[float]:
        """One workflow of that tenant with so many activities at once in the shared queue, each of `work_s`; how many
        milliseconds each has waited before it began."""

    @abc.abstractmethod
    async def has_waiting(self, activities: int) -> bool:
        """Whether so many activities, or more, wait in the shared queue."""

    @abc.abstractmethod
    async def forget_finished(self) -> int:
        """Remove the workflows of `run_sequence` that have ended, as an operator does it; how many there were."""

    def statements(self) -> int | None:
        """How many the server has run for this engine so far, this question not among them; None without a server."""
        return None


async def each(items: Iterable[T], in_flight: int, action: Callable[[T], Awaitable[object]]) -> None:
    """Do something with every item, so many at a time."""
    waiting = iter(items)

    async def some() -> None:
        for item in waiting:
            await action(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(some())


async def until(is_so: Callable[[], Awaitable[bool]], every_s: float) -> None:
    while not await is_so():  # noqa: ASYNC110 - other processes ring no bell
        await asyncio.sleep(every_s)
