"""One running attempt of an activity, and what its code may ask about itself (`activity.info()`, heartbeats)."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pledger.engine.keyring import token_of
from pledger.engine.port.streams import Publication
from pledger.history import payloads
from pledger.history.events import ScheduleActivity
from pledger.history.publishing import check_topic, encode_value
from pledger.history.secret import redact_payload

if TYPE_CHECKING:
    from pledger.engine.port.records import TaskRow
    from pledger.engine.port.tokens import TokenKey
    from pledger.engine.publishing import Outbox
    from pledger.history.failures import Failure
    from pledger.machine.definitions import ActivityDefinition
    from pledger.machine.identity import RunIdentity


class CompleteAsync(BaseException):
    """Raised by `activity.raise_complete_async()`. User code must not swallow it."""


class Attempt:
    """row: its task row, or None for an eager attempt, whose record is the transition that scheduled it.

    deadline_ms: when this attempt times out (by its start-to-close, by the schedule-to-close of the whole, or with its
    run), with deadline_kind saying which; None: never. run_deadline_ms: when its run does. now_ms: the ledger's time.
    ending: what ended it from outside, a time-out's or a cancellation's failure; the code's own outcome then no longer
    counts. cancel_requested: nobody wants its outcome any more.
    heartbeat: the details reported last, a JSON array; beat_of_last_attempt: those that this attempt found.
    row_sent: a row is on its way to the store, or there. opened: how often the circuit of what it depends on had opened
    when it began; None without one, and before.
    began_s: when its code did, by the loop's clock, where there is a meter.
    connection: of its transaction, while its code has one. resolve: gives the values of the secrets that its activity
    declares; may block.
    outbox: what its code publishes; None as long as that is nothing.
    key: gives what tokens are signed with. has_token: its code has asked for one.
    stop: how its code is told to stop; None before it runs, and for a task of the loop, which is cancelled.
    """

    # What an attempt that simply runs and returns never changes, and so need not set: one is made for every step.
    beat_flushed_at = 0
    unwritten_beat = False
    ending: Failure | None = None
    cancel_requested = False
    row_sent = False
    opened: int | None = None
    began_s: float | None = None
    finished = False
    task: asyncio.Future[Any] | None = None
    timer: asyncio.TimerHandle | None = None
    cancel_event: threading.Event | None = None
    connection: Any = None
    resolve: Callable[[], dict[str, str]] | None = None
    stop: Callable[[], None] | None = None
    on_heartbeat: Callable[[Attempt], None] | None = None
    on_publish: Callable[[Attempt], None] | None = None
    outbox: Outbox | None = None
    payload_bytes_max = payloads.PAYLOAD_BYTES_MAX
    has_token = False
    heartbeat: bytes | None = None
    beat_of_last_attempt: bytes | None = None
    now_ms: Callable[[], int]  # given when it starts, as is
    key: Callable[[], TokenKey]
    deadline_ms: int | None = None
    deadline_kind = "start_to_close"

    def __init__(  # noqa: PLR0917 - by position: one is made for every step
        self,
        definition: ActivityDefinition[Any, Any],
        identity: RunIdentity,
        run_key: int,
        event_id: int,
        command: ScheduleActivity,
        number: int,
        fence: int,
        scheduled_ms: int,
        started_ms: int,
        row: TaskRow | None,
        loop: asyncio.AbstractEventLoop,
        last_failure: Failure | None = None,
        run_deadline_ms: int | None = None,
    ) -> None:
        self.definition = definition
        self.identity = identity
        self.run_key = run_key
        self.event_id = event_id
        self.command = command
        self.number = number
        self.fence = fence
        self.scheduled_ms = scheduled_ms
        self.started_ms = started_ms
        self.row = row
        self.loop = loop
        self.last_failure = last_failure
        self.beat_at = started_ms
        if row is not None:
            self.heartbeat = self.beat_of_last_attempt = row.heartbeat
        options = command.options
        if options.start_to_close_ms is not None:
            # Counted from this attempt's start (case RTY-08): a second attempt is not born past its deadline.
            self.deadline_ms = started_ms + options.start_to_close_ms
        if options.schedule_to_close_ms is not None:
            whole = scheduled_ms + options.schedule_to_close_ms
            if self.deadline_ms is None or whole < self.deadline_ms:
                self.deadline_ms, self.deadline_kind = whole, "schedule_to_close"
        self.run_deadline_ms = run_deadline_ms or options.run_deadline_ms
        if self.run_deadline_ms is not None and (self.deadline_ms is None or self.run_deadline_ms < self.deadline_ms):
            self.deadline_ms, self.deadline_kind = self.run_deadline_ms, "run"

    @property
    def idempotency_key(self) -> str:
        """Stable over attempts, take-overs, resets: the declared business key, or the position in the chain."""
        declared = self.command.idempotency_key
        return declared or f"{self.identity.chain_id}/{self.identity.segment}/{self.event_id}"

    @property
    def fencing_token(self) -> int:
        """Higher for every later attempt of the activity, whichever worker makes it: attempts are numbered across
        take-overs, and each number is durable before its attempt starts. A reset counts on from the run before."""
        return self.number + (self.command.options.tokens_before or 0)

    def stop_code(self) -> None:
        """Tell its code to stop, if it runs."""
        if self.stop is not None:
            self.stop()
        elif self.task is not None:
            # Not at once: a task that is cancelled before its first step never runs, and could not say that it ended.
            # Its first step is in line already, before this.
            self.loop.call_soon(self.task.cancel)

    def token(self, expires_ms: int) -> str:
        """What completes it from outside until then. Callable from its thread."""
        return token_of(self.key(), self.identity, self.event_id, self.number, expires_ms)

    def beat(self, details: tuple[Any, ...]) -> None:
        """The code is alive. Callable from its thread. Raises PayloadError."""
        data = redact_payload(payloads.encode_args_untyped(details)) if details else None
        if data is not None:
            what = f"the heartbeat of activity {self.definition.name!r} in {self.identity}"
            payloads.check_size(data, what, payloads.PAYLOAD_BYTES_MAX)
        self.beat_encoded(data)

    def beat_encoded(self, data: bytes | None) -> None:
        """The same, with the details as a JSON array."""
        if asyncio._get_running_loop() is self.loop:  # noqa: SLF001 - documented for event loops
            self._note_beat(data)
        else:
            self.loop.call_soon_threadsafe(self._note_beat, data)

    def publish(self, topic: str, value: Any) -> None:
        """A value for the stream of a topic. Callable from its thread. Raises PayloadError, UsageError."""
        topic = check_topic(topic)
        body = redact_payload(encode_value(value))
        what = f"what activity {self.definition.name!r} in {self.identity} publishes to {topic!r}"
        payloads.check_size(body, what, self.payload_bytes_max)
        self.publish_encoded(topic, body)

    def publish_encoded(self, topic: str, body: bytes) -> None:
        """The same, with the value as JSON."""
        from pledger.engine.publishing import Outbox  # noqa: PLC0415 - most attempts publish nothing

        outbox: Outbox = self.__dict__.setdefault("outbox", Outbox())  # whichever of its threads comes first
        is_here = asyncio._get_running_loop() is self.loop  # noqa: SLF001 - documented for event loops
        outbox.admit(self, topic, len(body), may_wait=not is_here)
        if is_here:
            self._note_published(outbox, Publication(topic, body))
        else:
            self.loop.call_soon_threadsafe(self._note_published, outbox, Publication(topic, body))

    def _note_published(self, outbox: Outbox, value: Publication) -> None:
        if self.finished or outbox.is_lost or self.on_publish is None:
            outbox.left((value,))
            return
        outbox.waiting.append(value)
        self.on_publish(self)

    def _note_beat(self, data: bytes | None) -> None:
        if self.finished:
            return
        if data is not None:
            self.heartbeat = data
        self.unwritten_beat = True
        if self.on_heartbeat is not None:
            self.on_heartbeat(self)


#: The attempt whose code is running in this context.
running: contextvars.ContextVar[Attempt] = contextvars.ContextVar("pledger_attempt")
