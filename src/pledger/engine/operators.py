"""What operators ask of limits and dependencies: what they name is checked, written, and told to the workers here."""

from __future__ import annotations

import getpass
import os
import socket
from typing import TYPE_CHECKING

from pledger.engine.port.dependencies import Ask
from pledger.errors import UsageError
from pledger.history.failures import cut

if TYPE_CHECKING:
    from pledger.engine.connection import Connection
    from pledger.engine.port.circuit import Dependency
    from pledger.history.placement import LimitRule


def person() -> str:
    """Who asks, as far as the machine knows: user@host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without an entry, as in many containers
        user = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
    return f"{user}@{socket.gethostname()}"


async def set_limit(connection: Connection, name: str, rule: LimitRule | None) -> None:
    """Other numbers than the code states; None: those of the code."""
    await connection.store.override_limit(connection.namespace, name, rule)
    connection.tell_workers()


async def ask_dependency(
    connection: Connection, name: str, *, is_pause: bool, reason: str, by: str | None, at_once: bool = False
) -> tuple[Dependency, Dependency]:
    """Pause or resume it; before and after. Raises UsageError for one that no worker has stated."""
    store, namespace = connection.store, connection.namespace
    found = await store.ask_dependency(namespace, name, Ask(is_pause, cut(reason), cut(by or person()), at_once))
    if found is None:
        known = ", ".join(await store.read_dependencies(namespace)) or "none"
        raise UsageError(
            f"no worker of namespace {namespace!r} has stated a dependency {name!r}; known here: {known}. It is the "
            "name of a RetryBudget at an activity, and is known once a worker with that activity has started"
        )
    connection.tell_workers()
    return found
