"""A run is ended from outside, at once, whoever holds it and whether or not anybody could run it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pledger import errors
from pledger.engine.families import report_of
from pledger.engine.port.answers import Reply
from pledger.engine.port.operations import Terminate
from pledger.history import events, transition
from pledger.history.transition import StoredTransition, Transition

if TYPE_CHECKING:
    from pledger.engine.connection import Connection
    from pledger.engine.port.records import RunRow


async def terminate(connection: Connection, row: RunRow, reason: str) -> bool:
    """Once, from where the run stands; False when it has gone on since the row was read."""
    from pledger.engine.newest import newest_transition  # noqa: PLC0415 - a client alone has no use for the rest of it

    # The time of a run never goes back, whatever the clock has done since its last transition.
    try:
        last = await newest_transition(connection.store, row)
    except errors.CorruptHistoryError:
        last = None  # a damaged run can be ended; there is no telling when it was last active
    last_ms = 0 if last is None else last.time_ms
    now_ms = max(last_ms, await connection.now_ms())
    body = transition.encode(Transition(transition.FORMAT, now_ms, None, (events.RunTerminated(reason),)))
    first = row.last_event + 1
    stored = StoredTransition(first, body, transition.checksum(row.head, first, body))
    report = report_of("terminated", None, reason)
    operation = Terminate(row.run_key, row.last_event, row.head, stored, first, now_ms, report=report)
    if await connection.committer.write(operation) is not Reply.WON:
        return False
    connection.terminated(row.run_key)
    return True
