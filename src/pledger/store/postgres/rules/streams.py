"""What runs publish, by topic."""

from __future__ import annotations

from collections.abc import Iterable

from pledger.engine.port.answers import Answer, Published, Reply
from pledger.engine.port.operations import Append, Publish
from pledger.engine.port.streams import Publication
from pledger.store.postgres import news
from pledger.store.postgres.found import Found, Needs
from pledger.store.postgres.writes import Writes


def needs_of_publish(op: Publish, needs: Needs) -> None:
    if op.owner is None:
        needs.runs.add(op.run_key)
    else:
        needs.tasks.add((op.run_key, op.event_id))
    needs.publishers.add((op.run_key, op.event_id, op.attempt))


def publish(op: Publish, found: Found, writes: Writes) -> Answer:
    place = (op.run_key, op.event_id, op.attempt)
    if not _may_publish(op, found) or place not in found.published:
        return Reply.LOST
    chain_key, known = found.published[place]
    there = max(0, known - op.number)
    _extend(chain_key, op.values[there:], place, op.number + there, op.time_ms, writes)
    return Published(chain_key)


def _may_publish(op: Publish, found: Found) -> bool:
    """By the row of its attempt, or that of its run: both are locked, and both are gone from it with its right."""
    if op.owner is None:
        run = found.runs.get(op.run_key)
        return run is not None and run.owner is not None and run.fence == op.fence
    task = found.tasks.get((op.run_key, op.event_id))
    return task is not None and (task.state, task.attempt, task.owner) == ("started", op.attempt, op.owner)


def extend(op: Append, chain_key: int, writes: Writes) -> None:
    """With what the code of a run has published in a transition."""
    _extend(chain_key, op.published, (op.run_key, op.transition.first_event_id, 0), 0, op.time_ms, writes)


def _extend(
    chain_key: int,
    values: Iterable[Publication],
    source: tuple[int, int, int],
    number: int,
    now_ms: int,
    writes: Writes,
) -> None:
    """source: run_key, event_id and attempt of who publishes; number: how many values it has published before."""
    for nth, each in enumerate(values, number + 1):
        writes.published.append((chain_key, each.topic, each.weight, *source, nth, now_ms, each.body))
        writes.said[news.for_stream(chain_key)] = None
