"""Ledgers for tests of the whole engine in one process, and workers that can die in it.

Time is real here, since SQLite and threads are; so delays are a few milliseconds, and no test asserts how long a thing
took, only what was recorded.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pledger import Client, Worker, connect
from pledger.engine.session import Heart, ThreadHeart
from pledger.machine.definitions import ActivityDefinition, WorkflowDefinition
from pledger.testing import replay

if TYPE_CHECKING:
    from pledger.metrics import Metrics

T = TypeVar("T")

LEASE = timedelta(milliseconds=300)
#: Longer than anything here should take, even on a loaded machine; reached only by a test that fails.
PATIENCE_S = 60.0


@dataclass
class Ledger:
    """One ledger under test. `url` is what every process would connect to.

    definitions: the workflows that workers of this ledger ran, by type, for the replay at the end. replay_at_end: False
    for tests that change the code under a run on purpose. namespaces: those that were connected to. worker_lease: of
    workers that do not die; a test that counts attempts gives them one that no busy machine outlasts.
    """

    url: str
    definitions: dict[str, Callable[..., Any] | type] = field(default_factory=dict)
    replay_at_end: bool = True
    namespaces: set[str] = field(default_factory=set)
    worker_lease: timedelta = LEASE

    @property
    def path(self) -> Path:
        """The database file."""
        assert self.url.startswith("sqlite:///")
        return Path(self.url.removeprefix("sqlite:///"))

    def connect(self, namespace: str = "default", metrics: Metrics | None = None) -> Any:
        self.namespaces.add(namespace)
        return connect(self.url, namespace=namespace, metrics=metrics)

    def worker(self, client: Client, *definitions: Any, **options: Any) -> Worker:
        """A worker for these workflows and activities, which replays every run that finishes."""
        return Worker(client, **self.options(*definitions, **{"lease": self.worker_lease, **options}))

    def options(self, *definitions: Any, **options: Any) -> dict[str, Any]:
        activities = [each for each in definitions if isinstance(each, ActivityDefinition)]
        workflows = [each for each in definitions if not isinstance(each, ActivityDefinition)]
        for each in workflows:
            self.definitions[WorkflowDefinition.of(each).name] = each
        return {"workflows": workflows, "activities": activities, "verify": 1.0, "lease": LEASE, **options}

    async def check_everything(self) -> None:
        """Every history is whole (reading it verifies the checksums), and replays against the code that made it."""
        for namespace in self.namespaces or {"default"}:
            async with self.connect(namespace) as client:
                async for run in client.list():
                    history = await client.handle(run.workflow_id, run_id=run.run_id).history()
                    if self.replay_at_end and run.workflow_type in self.definitions:
                        assert replay(history, self.definitions[run.workflow_type]) == len(history.events)


async def until(holds: Callable[[], Awaitable[T]] | Callable[[], T]) -> T:
    """Wait until the call gives something true, and give that; looked at every few milliseconds."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = holds()
            if isinstance(found, Coroutine):
                found = await found
            if found:
                return found  # type: ignore[return-value]
            await asyncio.sleep(0.005)


# Workers that die -----------------------------------------------------------------------------------------------------


class _StoppableHeart(ThreadHeart):
    """Beats while its worker lives."""

    def __init__(self, alive: threading.Event) -> None:
        super().__init__()
        self._alive = alive

    def start(self, beat: Callable[[], None], period_s: float) -> None:
        super().start(lambda: beat() if self._alive.is_set() else None, period_s)


class _MortalWorker(Worker):
    def __init__(self, client: Client, alive: threading.Event, **options: Any) -> None:
        super().__init__(client, **options)
        self._alive = alive
        client.internals.heart_arguments = (alive,)

    def _new_heart(self) -> Heart:
        return _StoppableHeart(self._alive)


class WorkerProcess:
    """A worker on a loop and a connection of its own, as near to another process as one process can.

    `freeze` stops it in its tracks: not a line of it runs any more, and its lease runs out. `thaw` lets it go on, as if
    the machine had slept.
    """

    def __init__(self, ledger: Ledger, *definitions: Any, metrics: Metrics | None = None, **options: Any) -> None:
        self._ledger = ledger
        self._metrics = metrics
        self._options = ledger.options(*definitions, **options)
        self._loop = asyncio.new_event_loop()
        self._alive = threading.Event()
        self._stack = AsyncExitStack()
        self._thread: threading.Thread | None = None
        self.thaw()
        self.client: Client = self.call(self._begin())

    async def _begin(self) -> Client:
        client: Client = await self._stack.enter_async_context(self._ledger.connect(metrics=self._metrics))
        await self._stack.enter_async_context(_MortalWorker(client, self._alive, **self._options))
        return client

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it on the worker's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE_S)

    def freeze(self) -> None:
        self._alive.clear()
        self._loop.call_soon_threadsafe(self._loop.stop)
        if self._thread is not None:
            self._thread.join()

    def thaw(self) -> None:
        self._alive.set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="worker-process", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop it in peace."""
        self.call(self._stack.aclose())
        self.freeze()
        self._loop.close()


@contextmanager
def worker_process(ledger: Ledger, *definitions: Any, **options: Any) -> Iterator[WorkerProcess]:
    """One that is stopped in peace at the end, thawed for it if need be."""
    process = WorkerProcess(ledger, *definitions, **options)
    try:
        yield process
    finally:
        if not process._alive.is_set():
            process.thaw()
        process.end()
