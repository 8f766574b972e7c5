"""Pausing and resuming for clients: what they name is checked, written, and told to the workers of this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pledger.engine.operators import person
from pledger.engine.port.pauses import PAUSE_KINDS, Pause, Scope
from pledger.errors import InvalidPolicyError, UsageError
from pledger.history.names import check_id, clean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pledger.engine.connection import Connection
    from pledger.engine.port.records import RunRow

#: Slower than this nothing would ever seem to happen, in a second.
RATE_MIN = 0.001


def scope_of(namespace: str, kind: str, name: str) -> Scope:
    """What is to be paused or resumed, checked. Raises UsageError."""
    if kind not in PAUSE_KINDS or kind == "run":
        raise UsageError(f"kind={kind!r} cannot be paused by name; use 'type', 'queue' or 'namespace'")
    if kind == "namespace" and name not in {"", namespace}:
        raise UsageError(
            f"this client is of namespace {namespace!r} and cannot pause {name!r}: connect(namespace={name!r}) can"
        )
    if kind != "namespace" and not name:
        raise UsageError(f"a {kind} to be paused has a name; this one is empty")
    return Scope(namespace, kind, check_id(name or namespace, f"the name of the {kind}"))


def scope_of_run(row: RunRow) -> Scope:
    return Scope(row.namespace, "run", row.run_id, row.run_key, row.workflow_id)


async def pause(connection: Connection, scope: Scope, reason: str, paused_by: str | None) -> Pause:
    by = clean(paused_by or person(), "who asks for a pause")
    found = await connection.store.pause(scope, clean(reason, "the reason of a pause"), by)
    connection.tell_workers()
    return found


async def resume(connection: Connection, scope: Scope, rate: float | None = None) -> Pause | None:
    """Raises InvalidPolicyError."""
    if rate is not None and rate < RATE_MIN:
        raise InvalidPolicyError(f"rate={rate:g} must be at least {RATE_MIN:g} a second; None resumes all at once")
    found = await connection.store.resume(scope, rate)
    connection.tell_workers()
    return found


def pauses_of(pauses: Iterable[Pause], row: RunRow) -> list[Pause]:
    """Those that cover the run, while it is open."""
    if row.closed_ms is not None:
        return []
    return [each for each in pauses if each.covers(row.run_key, row.workflow_type, row.task_queue)]
