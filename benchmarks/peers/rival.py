"""What the workloads ask of an engine. An adapter is a subclass; it runs in the engine's own environment."""

import abc
import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable
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
