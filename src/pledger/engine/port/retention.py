"""What a store forgets of finished chains, and the rules of it.

The unit is the chain: it is *finished* once all its runs are closed, and its age counts from the end of the last one.
To *forget* it removes histories, attempt logs, questions, doubts after a loss (see the port's `Losses`), and messages
whose ids need no memory. What is left remembers the ids: the row of each run, with `last_event` 0 (workflow id, run
id, type, status, digest of the input, times, checksum), and the ids of messages that their senders had chosen. So a
start or a message that is repeated later is still known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Protocol, TypeAlias

from pledger.engine.port.records import Record, RunRow

#: Where a list of finished chains goes on: (closed_ms, run_key) of the last one that was seen.
Place: TypeAlias = tuple[int, int]
FROM_THE_START: Final[Place] = (0, 0)

#: Events of a run whose history goes in the transaction that forgets it; a longer one goes piece by piece after that.
EVENTS_MAX: Final = 2_000


class Finished(Record, frozen=True):
    """A chain that has ended. run_key, closed_ms: of its last run. events: of all its runs. undelivered: whether
    signals came too late for it, which nobody may have looked at yet."""

    chain_key: int
    run_key: int
    closed_ms: int
    events: int
    undelivered: bool

    @property
    def place(self) -> Place:
        return self.closed_ms, self.run_key


class Retention(Protocol):
    """The verbs. keep_ms: what has been finished for longer than this, by the store's own clock, may go."""

    async def take_duty(self, namespace: str, name: str, session_key: int, hold_ms: int) -> bool:
        """Whether the chore is this session's now, for so long; also for one that had it already."""
        ...

    async def leave_duty(self, namespace: str, name: str, session_key: int, rest_ms: int) -> None:
        """The chore is done, and nobody need do it for so long."""
        ...

    async def finished_types(self, namespace: str) -> list[str]:
        """The workflow types of which something closed is there, in order."""
        ...

    async def finished_chains(
        self, namespace: str, workflow_type: str, keep_ms: int, after: Place, limit: int
    ) -> list[Finished]:
        """The next at most `limit` chains beyond `after` whose last run is of this type, oldest end first."""
        ...

    async def chain_runs(self, chain_keys: Sequence[int]) -> list[RunRow]:
        """All runs of these chains, in the order of their keys."""
        ...

    async def forget_chains(self, chain_keys: Sequence[int], keep_ms: int) -> int:
        """Forget those that are finished, and were not forgotten before; how many runs that were.

        A run with more than EVENTS_MAX events leaves its history to `drop_leftovers`. What somebody else is just at is
        passed over. Not durable by itself: a power cut may bring back what was there.
        """
        ...

    async def drop_leftovers(self, limit: int) -> int:
        """Remove at most about `limit` rows of runs that were forgotten; 0 when there is nothing left."""
        ...


def in_batches(
    chains: Sequence[Finished], chains_max: int, events_max: int, *, undelivered: bool = False
) -> Iterator[list[Finished]]:
    """The chains that may go, in batches that one short transaction can take.

    undelivered: also those with signals that nobody took: by itself nothing goes that a person may still have to see.
    """
    batch: list[Finished] = []
    events = 0
    for chain in chains:
        if chain.undelivered and not undelivered:
            continue
        # What is longer than that is only marked in the batch.
        weight = min(chain.events, EVENTS_MAX)
        if batch and (len(batch) >= chains_max or events + weight > events_max):
            yield batch
            batch, events = [], 0
        batch.append(chain)
        events += weight
    if batch:
        yield batch
