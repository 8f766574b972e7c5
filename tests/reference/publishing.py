"""Reference workflow that publishes: its code, and the attempts of its activities, over the runs of a chain."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pledger import activity, workflow
from pledger.history import payloads
from pledger.history.sealing import is_sealed
from tests.reference.activities import QUICK, step

if TYPE_CHECKING:
    from pledger.store.memory.state import Stream
    from pledger.testing.invariants import Judged

#: Parts of each run, and tokens of each part.
PARTS = 2
TOKENS = 3


@activity.defn(retry_policy=QUICK)
async def recite(name: str) -> str:
    """Token by token, as a model does; then the effect."""
    for n in range(TOKENS):
        activity.publish("tokens", [name, n])
        await asyncio.sleep(0.05)
    return await step.fn(f"recite {name}")


@workflow.defn
class Reciting:
    """Says how far it is, and has as much recited in each run of its chain; what it is asked to say comes between."""

    def __init__(self) -> None:
        self.asked = 0

    @workflow.run
    async def run(self, chapters: int) -> str:
        for part in range(PARTS):
            workflow.publish("progress", [chapters, part])
            await asyncio.sleep(0.2)
            await recite(f"{chapters}.{part}")
        workflow.publish("progress", [chapters, "done"])
        if chapters > 1:
            workflow.continue_as_new(chapters - 1)
        return "recited"

    @workflow.signal
    def note(self, text: str) -> None:
        self.asked += 1
        workflow.publish("notes", text)


WORKFLOWS = [Reciting]
ACTIVITIES: list[Any] = [recite]


def progress(chapters: int) -> list[list[Any]]:
    """What the code of a chain says, from its first run to its last."""
    return [[chapter, part] for chapter in range(chapters, 0, -1) for part in (*range(PARTS), "done")]


def each_value_is_published_once(sim: Judged) -> list[str]:
    """What the code publishes is there as it would be if nobody had ever died; an attempt's tokens are a beginning of
    all its tokens, and all of them where it brought the result."""
    found: list[str] = []
    first = {row.chain_key: row for row in reversed(sim.state.runs.values())}
    for chain_key, streams in sim.state.streams.items():
        row = first[chain_key]
        if row.workflow_type != "Reciting" or any(each.is_forgotten for each in streams.values()):
            continue
        told = [value for value in _values(streams.get("progress")) if value is not None]
        sim.auditor.checks(*["what is published is published once"] * len(told))
        chapters = told[0][0] if told else 0
        if told != progress(chapters)[: len(told)]:
            found.append(f"what is published is published once: {row.workflow_id} says {told}")
        found += _attempts(sim, row.workflow_id, streams.get("tokens"))
        notes = list(_values(streams.get("notes")))
        if len(set(notes)) < len(notes):
            found.append(f"what is published is published once: {row.workflow_id} has the notes {notes}")
    return found


def _values(stream: Stream | None) -> Iterator[Any]:
    for _, each in () if stream is None else stream.values:
        yield None if is_sealed(each.body) else payloads.decode(each.body)


def _attempts(sim: Judged, workflow_id: str, stream: Stream | None) -> Sequence[str]:
    tokens: dict[tuple[str, int, int], list[int]] = {}
    for (_, each), value in zip(() if stream is None else stream.values, _values(stream), strict=False):
        tokens.setdefault((each.run_id, each.event_id, each.attempt), []).append(value[1])
    outcomes = {
        (record.run_id, event_id): outcome
        for record in sim.auditor.records.by_run.values()
        for event_id, outcome in record.outcomes.items()
    }
    found: list[str] = []
    for (run_id, event_id, attempt), numbers in tokens.items():
        sim.auditor.checks("what is published is published once")
        outcome = outcomes.get((run_id, event_id))
        is_whole = outcome is not None and outcome.attempt == attempt and hasattr(outcome, "result")
        expected = list(range(TOKENS if is_whole else len(numbers)))
        if numbers != expected:
            what = f"attempt {attempt} of event {event_id} of {workflow_id} ({run_id})"
            found.append(f"what is published is published once: {what} has the tokens {numbers}")
    return found
