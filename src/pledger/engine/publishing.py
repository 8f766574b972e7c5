"""What attempts publish: written in order, batch after batch, and before the outcome of the attempt.

A value is on its way as soon as it is published: while nothing of the attempt is being written it goes with the next
commit of the process; what comes meanwhile is the next batch. An attempt publishes by the same right by which its
outcome counts: a value of one that has lost it (its worker's lease is over, its run has ended, a later attempt has
begun) is not written.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pledger.engine.leaving import AGAIN_S
from pledger.engine.port.answers import Published, Reply
from pledger.engine.port.operations import Publish
from pledger.engine.port.streams import PAGE_VALUES, PAGE_WEIGHT, Publication
from pledger.errors import StoreUnavailableError
from pledger.history.publishing import Tally

if TYPE_CHECKING:
    from pledger.engine.attempt import Attempt
    from pledger.engine.committer import Committer
    from pledger.engine.port.answers import Answer
    from pledger.engine.session import LedgerClock
    from pledger.engine.task_rows import TaskRows

logger = logging.getLogger("pledger.engine")

#: How often a thread that waits for room looks whether its attempt is over.
LOOK_S: Final = 0.5


class Outbox(Tally):
    """What one attempt has published and is not written yet.

    waiting: in order. in_flight: the batch that is being written. number: how many values are written. is_lost: the
    attempt has no right to publish any more. waiters: called once nothing is on its way.
    """

    __slots__ = ("_room", "in_flight", "is_lost", "number", "waiters", "waiting")

    def __init__(self) -> None:
        super().__init__()
        self.waiting: deque[Publication] = deque()
        self.in_flight: tuple[Publication, ...] = ()
        self.number = 0
        self.is_lost = False
        self.waiters: list[Callable[[], None]] = []
        self._room = threading.Condition()

    def admit(self, attempt: Attempt, topic: str, size: int, *, may_wait: bool) -> None:
        """Count a value that is to come. may_wait: in a thread of its own, which waits for room.

        Raises UsageError where there is none, or for one topic too many.
        """
        remedy = "Wait in between: await something, so that they can be written"
        with self._room:
            while may_wait and not self.has_room(size) and not (self.is_lost or attempt.finished):
                self._room.wait(LOOK_S)
            self.add(topic, size, f"activity {attempt.definition.name!r} of {attempt.identity}", remedy)

    def left(self, values: tuple[Publication, ...]) -> None:
        """They are not on their way any more."""
        with self._room:
            self.values -= len(values)
            self.bytes -= sum(len(each.body) for each in values)
            self._room.notify_all()

    @property
    def is_pending(self) -> bool:
        return bool(self.waiting or self.in_flight)

    def next_batch(self) -> tuple[Publication, ...]:
        batch: list[Publication] = []
        weight = 0
        while self.waiting and len(batch) < PAGE_VALUES and (not batch or weight < PAGE_WEIGHT):
            batch.append(self.waiting.popleft())
            weight += batch[-1].weight
        self.in_flight = tuple(batch)
        return self.in_flight

    def drop(self) -> None:
        """Nothing of it is written any more."""
        self.is_lost = True
        self.left((*self.in_flight, *self.waiting))
        self.in_flight = ()
        self.waiting.clear()
        self.settle()

    def settle(self) -> None:
        waiters, self.waiters = self.waiters, []
        for each in waiters:
            each()


class Publishing:
    """Of one worker. rows: of its attempts. published: told of the chain whose streams have got something."""

    def __init__(
        self,
        committer: Committer,
        clock: LedgerClock,
        loop: asyncio.AbstractEventLoop,
        rows: TaskRows,
        published: Callable[[int], None],
    ) -> None:
        self._committer = committer
        self._clock = clock
        self._loop = loop
        self._rows = rows
        self._published = published

    def publish(self, attempt: Attempt) -> None:
        """There is something in the attempt's outbox."""
        outbox = attempt.outbox
        assert outbox is not None
        if not outbox.in_flight:
            outbox.next_batch()
            self._write(attempt)

    def _write(self, attempt: Attempt) -> None:
        outbox = attempt.outbox
        assert outbox is not None
        if attempt.finished or not outbox.in_flight:
            outbox.drop()
            return
        row = attempt.row
        operation = Publish(
            attempt.run_key,
            attempt.event_id,
            attempt.number,
            None if row is None else row.owner or 0,
            attempt.fence,
            outbox.number,
            outbox.in_flight,
            self._clock.now_ms(),
        )
        self._committer.submit(operation, functools.partial(self._written, attempt, outbox))

    def _written(self, attempt: Attempt, outbox: Outbox, answer: Answer) -> None:
        if isinstance(answer, Published):
            batch, outbox.in_flight = outbox.in_flight, ()
            outbox.number += len(batch)
            outbox.left(batch)
            self._published(answer.chain_key)
            if outbox.waiting:
                self.publish(attempt)
            else:
                outbox.settle()
        elif isinstance(answer, StoreUnavailableError) or self._is_to_come(attempt, answer):
            # What was written all the same is known there, and is not written again.
            self._loop.call_later(AGAIN_S, self._write, attempt)
        else:
            who, name = attempt.identity, attempt.definition.name
            why = f": {answer}" if isinstance(answer, Exception) else ""
            logger.info("activity %s of %s: attempt %d publishes no more%s", name, who, attempt.number, why)
            outbox.drop()

    def _is_to_come(self, attempt: Attempt, answer: Answer) -> bool:
        """Whether the row that gives it its right is on its way to the store."""
        return answer is Reply.LOST and attempt.row is not None and self._rows.is_on_hold(attempt.run_key)
