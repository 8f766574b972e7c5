"""A run in the memory of the worker that owns it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pledger.history.events import CancelRequested, SignalReceived, UpdateAccepted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pledger.engine.attempt import Attempt
    from pledger.engine.port.records import AttemptRecord
    from pledger.engine.updating import Ask
    from pledger.history.events import ActivityCompleted, ActivityFailed, Input
    from pledger.machine.identity import RunIdentity
    from pledger.machine.machine import Machine


class ActiveRun:
    """inputs wait for the next transition; origins say where each came from: a positive message_key (inbox), the
    negated event id of its task row, or 0 (nothing stored but the history).

    outcomes: those among the inputs that attempts of this worker brought; outcomes_applied: those that are in flight.
    head, last_event, time_ms: of its newest durable transition. code: identity last recorded in its history.
    deadline_ms: when the run times out, or None. in_flight: a transition is being committed (at most one).
    held: it is paused, and makes no transition until it leaves or is resumed.
    in_doubt: the ledger may have lost its newest transitions; what may run once only may have run. slept: it may have
    if a message woke the run, which is lost too.
    gone: it left memory; nothing may act for it any more. taken: message_keys that became inputs; delivered: those of
    them whose transition is durable.
    event_mark, byte_mark: at which length of its history somebody looks how it grows. warned: of which share it has
    been warned, in percent; None: not known here. growth: a warning that is to be written. held_back: messages, with
    their origins, that have to wait: see `growth`.
    waiting: called, with the machine at rest, once nothing is in flight (queries). asks: of those who wait for updates;
    has_updates: some are among the inputs. settled: keys of messages that came to nothing with the start. given: how
    many inputs a run begins with that was reset, or goes on for such a one: they are one message, and come together.
    started_ms: when it was started, wherever. For a meter, and kept only where there is one: ready_s, when it last
    became ready, by the loop's clock; waited_ms: how long it had waited in the store before that; met: its code has
    gone on since it came into memory.
    """

    __slots__ = (
        "armed_ms",
        "asks",
        "byte_mark",
        "chain_key",
        "closed",
        "code",
        "deadline_ms",
        "delivered",
        "event_mark",
        "fence",
        "given",
        "gone",
        "growth",
        "has_updates",
        "head",
        "held",
        "held_back",
        "identity",
        "in_doubt",
        "in_flight",
        "inputs",
        "last_event",
        "machine",
        "met",
        "origins",
        "outcomes",
        "outcomes_applied",
        "ready",
        "ready_s",
        "releasing",
        "run_key",
        "settled",
        "slept",
        "started_ms",
        "taken",
        "terms",
        "time_ms",
        "waited_ms",
        "waiting",
        "warned",
    )

    def __init__(
        self, identity: RunIdentity, machine: Machine, *, run_key: int, chain_key: int, fence: int, head: bytes
    ) -> None:
        self.identity = identity
        self.machine = machine
        self.run_key = run_key
        self.chain_key = chain_key
        self.fence = fence
        self.head = head
        self.last_event = 0
        self.time_ms = 0
        self.started_ms = 0
        self.ready_s = 0.0
        self.waited_ms = 0
        self.met = False
        self.code: str | None = None
        self.deadline_ms: int | None = None
        self.terms: tuple[str | None, int | None] | None = None
        self.inputs: list[Input] = []
        self.origins: list[int] = []
        self.outcomes: list[tuple[Attempt, ActivityCompleted | ActivityFailed]] = []
        self.outcomes_applied: Sequence[tuple[Attempt, ActivityCompleted | ActivityFailed]] = ()
        self.event_mark = 0
        self.byte_mark = 0
        self.warned: int | None = None
        self.growth: AttemptRecord | None = None
        self.held_back: tuple[tuple[Input, int], ...] = ()
        self.taken: set[int] | None = None
        self.delivered: tuple[int, ...] = ()
        self.in_doubt = False
        self.slept = False
        self.in_flight = False
        self.ready = False
        self.releasing = False
        self.held = False
        self.gone = False
        self.closed = False
        self.armed_ms: int | None = None
        self.waiting: tuple[Callable[[], None], ...] = ()
        self.asks: tuple[Ask, ...] = ()
        self.has_updates = False
        self.settled: tuple[int, ...] = ()
        self.given = 0

    def add(self, one: Input, origin: int = 0) -> None:
        """Put an input in line for the next transition."""
        self.inputs.append(one)
        self.origins.append(origin)

    def take(self, message_key: int) -> bool:
        """Note that the message becomes an input; False when it did before."""
        if self.taken is None:
            self.taken = set()
        elif message_key in self.taken:
            return False
        self.taken.add(message_key)
        return True

    def forget_delivered(self) -> None:
        """Before its inbox is read: from now on the store does not show what was delivered. A read that began earlier
        may still show it, and must not deliver it again."""
        if self.taken is not None:
            self.taken.difference_update(self.delivered)
        self.delivered = ()

    def due_ms(self) -> int | None:
        """When it must be activated on its own account: its next timer or its deadline."""
        timer = self.machine.next_timer_ms() if self.machine.due else None
        if self.deadline_ms is None:
            return timer
        return self.deadline_ms if timer is None else min(timer, self.deadline_ms)

    @property
    def has_work(self) -> bool:
        """Something waits to become a transition."""
        return bool(self.inputs or self.machine.unrecorded or (self.held_back and not self.machine.is_busy()))

    @property
    def at_rest(self) -> bool:
        """Nothing is in flight and nothing waits to become a transition."""
        return not (self.in_flight or self.inputs or self.ready or self.releasing or self.machine.unrecorded)


def in_no_inbox(inputs: Sequence[Input], origins: Sequence[int]) -> list[Input]:
    """Messages that a reset gave again: who ends without taking them leaves them to nobody but its successor."""
    kinds = (SignalReceived, UpdateAccepted, CancelRequested)
    return [one for one, origin in zip(inputs, origins, strict=True) if not origin and isinstance(one, kinds)]
