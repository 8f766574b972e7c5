"""Metrics for Prometheus, under the names that the field has for them.

    metrics = Metrics()                                    # pip install pledger[metrics]
    async with connect(url, metrics=metrics) as client:    # what it asks, and the workers on it
        with metrics.serve(9464):                          # or your own server, with the registry
            await Worker(client, ...).run()

`docs/observability.md` has the table of them. A process without `Metrics` loads nothing of this, and counts nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import prometheus_client
from prometheus_client import CollectorRegistry

from pledger.errors import InvalidPolicyError, UsageError
from pledger.history.times import check_duration
from pledger.metrics import families
from pledger.metrics.ledger import Watched
from pledger.metrics.recording import ConnectionRecording, Requests, WorkerRecording
from pledger.metrics.scraping import Scrape

if TYPE_CHECKING:
    from pledger.engine.connection import Connection
    from pledger.interceptors import Interceptor

__all__ = ["DEFAULT_HOST", "DEFAULT_PORT", "Metrics"]

#: Where OpenTelemetry's exporter for Prometheus listens, which scrapers know.
DEFAULT_PORT: Final = 9464
DEFAULT_HOST: Final = "127.0.0.1"


class Metrics:
    """What connections, and the workers on them, come to. Give one to each `connect` of a process.

    registry: where they are registered; the default one of prometheus_client, which has the process's own too.
    prefix: of all names. ledger_every: the ledger as a whole (what waits, who works) is looked at by a scrape, and not
    more often than this; None: never. Connections to one namespace tell of it once: give those to different ledgers
    Metrics with registries of their own.
    Raises UsageError for a registry that has them already, InvalidPolicyError for a time of 0 or less.
    """

    def __init__(
        self,
        registry: CollectorRegistry | None = None,
        *,
        prefix: str = "pledger_",
        ledger_every: timedelta | None = timedelta(seconds=10),
    ) -> None:
        if ledger_every is not None:
            every = check_duration(ledger_every, "Metrics(ledger_every=...)", or_none="None for never")
            if every <= timedelta(0):
                raise InvalidPolicyError(f"Metrics(ledger_every={every}) must be more than 0, or None for never")
        self.registry = prometheus_client.REGISTRY if registry is None else registry
        self._every_s = None if ledger_every is None else ledger_every.total_seconds()
        self._connections: list[tuple[ConnectionRecording, Watched | None]] = []
        try:
            self._recorded = families.recorded(self.registry, prefix)
            self.registry.register(Scrape(prefix, self._workers, self._ledgers))
        except ValueError as error:
            raise UsageError(
                f"this registry has metrics of these names already ({error}). One Metrics serves every connection of a "
                "process: give the same one to each connect(), or this one a registry of its own"
            ) from error

    @contextlib.contextmanager
    def serve(self, port: int = DEFAULT_PORT, host: str = DEFAULT_HOST) -> Iterator[int]:
        """Serve the registry at http://host:port/metrics, from a thread, while the block is open. Gives the port, which
        for 0 is any free one. Raises UsageError where nothing can listen there."""
        try:
            server, thread = prometheus_client.start_http_server(port, host, self.registry)
        except (OSError, OverflowError) as error:
            raise UsageError(f"metrics cannot be served at {host}:{port}: {error}") from error
        try:
            yield server.server_port
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    # For connections --------------------------------------------------------------------------------------------------

    def recording(self, namespace: str) -> ConnectionRecording:
        """What a connection and its workers tell. Not for programs; nor are those below."""
        return ConnectionRecording(self._recorded, namespace)

    def requests(self, recording: ConnectionRecording) -> Interceptor:
        """Counts what its client asks."""
        return Requests(recording.series)

    @contextlib.contextmanager
    def watching(self, connection: Connection, recording: ConnectionRecording) -> Iterator[None]:
        """While a connection is open, scrapes show its workers and its ledger."""
        watched = None if self._every_s is None else Watched(connection, self._every_s)
        entry = (recording, watched)
        self._connections.append(entry)
        try:
            yield
        finally:
            self._connections.remove(entry)
            if watched is not None:
                watched.close()

    def _workers(self) -> list[WorkerRecording]:
        return [worker for recording, _ in list(self._connections) for worker in list(recording.workers)]

    def _ledgers(self) -> list[Watched]:
        """One for each namespace: the oldest connection to it."""
        found: dict[str, Watched] = {}
        for _, watched in list(self._connections):
            if watched is not None:
                found.setdefault(watched.namespace, watched)
        return list(found.values())
