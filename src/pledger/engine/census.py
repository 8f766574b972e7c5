"""A ledger as a whole, as it is at one moment: what no worker can know alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pledger.engine.connection import Connection
    from pledger.engine.port.records import OpenRow, QueueRow


class Census(NamedTuple):
    """now_ms: the ledger's time of it. queues: with activities that wait or run. runs: those that are open. sessions:
    workers by (task queue, whether their lease stands). pauses: by their kind."""

    now_ms: int
    queues: list[QueueRow]
    runs: list[OpenRow]
    sessions: Mapping[tuple[str, bool], int]
    pauses: Mapping[str, int]


async def take_census(connection: Connection) -> Census:
    """By a few questions, each of which an index answers."""
    store, namespace = connection.store, connection.namespace
    now_ms = await connection.now_ms()
    queues = await store.read_queues(namespace, now_ms)
    runs = await store.count_open(namespace, now_ms)
    sessions = await store.read_sessions(namespace)
    pauses = await store.read_pauses(namespace)
    return Census(
        now_ms,
        queues,
        runs,
        Counter((each.task_queue, each.expires_ms > now_ms) for each in sessions),
        Counter(each.scope.kind for each in pauses),
    )
