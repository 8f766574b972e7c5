"""Pausing and resuming a dependency for clients: what they name is checked, written, and told to the workers here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pledger.engine.pausing import person
from pledger.engine.port.dependencies import Ask
from pledger.errors import UsageError
from pledger.history.failures import cut

if TYPE_CHECKING:
    from pledger.engine.connection import Connection
    from pledger.engine.port.circuit import Dependency


async def ask(
    connection: Connection, name: str, *, is_pause: bool, reason: str, by: str | None, at_once: bool = False
) -> tuple[Dependency, Dependency]:
    """Before and after. Raises UsageError for one that no worker has stated."""
    store, namespace = connection.store, connection.namespace
    found = await store.ask_dependency(namespace, name, Ask(is_pause, cut(reason), cut(by or person()), at_once))
    if found is None:
        known = ", ".join(await store.read_dependencies(namespace)) or "none"
        raise UsageError(
            f"no worker of namespace {namespace!r} has stated a dependency {name!r}; known here: {known}. It is the "
            "name of a RetryBudget at an activity, and is known once a worker with that activity has started"
        )
    for engine in connection.engines:
        engine.changed()
    return found
