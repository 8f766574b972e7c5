"""Where a history can be cut, so that a new run goes on from there: pure arithmetic on its transitions.

What was decided is decided as a whole: an activation (a transition, with those that continue it) is kept, or its code
decides anew. In the second case those of its inputs that lie before the point still count: an outcome that was recorded
is a fact, and is not fetched twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from pledger.history import events
from pledger.history.events import Event, Input
from pledger.history.failures import Failure
from pledger.history.transition import Transition

#: What ends a run from outside: no code decides over it, and no prefix has it.
_ENDS = (events.RunTerminated, events.RunTimedOut)
_CLOSING = (events.CompleteRun, events.FailRun, events.CancelRun, events.ContinueAsNew)


@dataclass(frozen=True, slots=True)
class Numbered:
    """An event with its place in the history."""

    event_id: int
    event: Event


@dataclass(frozen=True, slots=True)
class Activation:
    """Transitions that are one decision of the code. first: the event id of its first input; last: of its last event.
    is_whole: nothing that the code asked for is missing. ends: whether the run ends with it."""

    transitions: tuple[Transition, ...]
    first: int
    last: int

    @property
    def inputs(self) -> tuple[Input, ...]:
        return self.transitions[0].inputs

    @property
    def is_whole(self) -> bool:
        return not self.transitions[-1].continues

    @property
    def ends(self) -> bool:
        events_ = self.transitions[-1].events()
        return isinstance(events_[-1], (*_ENDS, *_CLOSING))

    def numbered(self) -> Iterator[Numbered]:
        event_id = self.first
        for transition in self.transitions:
            for event in transition.events():
                yield Numbered(event_id, event)
                event_id += 1


@dataclass(frozen=True, slots=True)
class Cut:
    """kept: the last event of the transitions that are taken over whole, 0 for none. carried: inputs after that which
    count, and which the code is to answer anew. event_id: the last event that counts.
    beyond: what does not count, in order.
    """

    kept: int
    carried: tuple[Input, ...]
    event_id: int
    beyond: tuple[Numbered, ...] = field(repr=False)


def activations(transitions: Iterable[Transition]) -> Iterator[Activation]:
    parts: list[Transition] = []
    first, last = 1, 0
    for transition in transitions:
        if parts and (not parts[-1].continues or transition.inputs):
            yield Activation(tuple(parts), first, last)
            parts, first = [], last + 1
        parts.append(transition)
        last += len(transition.inputs) + len(transition.commands)
    if parts:
        yield Activation(tuple(parts), first, last)


def cut_after(transitions: Sequence[Transition], event_id: int) -> Cut:
    """The cut at an event: what lies before it and the event itself count, as far as a cut can be there.

    In the midst of what the code asked for it cannot: then all of that is decided anew, from the last input on.
    event_id: from 1 to the last one.
    """
    kept = 0
    for one in activations(transitions):
        if one.last <= event_id and one.is_whole and not one.ends:
            kept = one.last
            continue
        inputs = [each for each in one.inputs if not isinstance(each, _ENDS)]
        carried = tuple(inputs[: max(0, event_id - one.first + 1)])
        return _cut(transitions, kept, carried)
    return _cut(transitions, kept, ())


def cut_before_failure(transitions: Sequence[Transition]) -> Cut | None:
    """The last cut from which a run that has ended badly can go on: before the failure of the activity that failed it,
    before it was asked to cancel, before its end. None for a run that has not ended so."""
    every = list(activations(transitions))
    if not every:
        return None
    last = every[-1]
    match last.transitions[-1].events()[-1]:
        case events.FailRun(failure):
            scheduled = _failed_activity(failure)
            guilty = _first(every, lambda one: scheduled in _failures_of(one)) if scheduled is not None else None
            return _cut_without(transitions, guilty or last, events.ActivityFailed)
        case events.CancelRun():
            asked = _first(every, lambda one: any(isinstance(each, events.CancelRequested) for each in one.inputs))
            return _cut_without(transitions, asked or last, events.CancelRequested)
        case events.RunTerminated() | events.RunTimedOut():
            return cut_after(transitions, last.first - 1)
        case _:
            return None


def _cut_without(transitions: Sequence[Transition], one: Activation, kind: type[Input]) -> Cut:
    """Everything before the activation counts, and of its inputs those that are not of this kind."""
    carried = tuple(each for each in one.inputs if not isinstance(each, kind))
    return _cut(transitions, one.first - 1, carried)


def _cut(transitions: Sequence[Transition], kept: int, carried: tuple[Input, ...]) -> Cut:
    beyond: list[Numbered] = []
    left = list(carried)
    event_id, last_carried = 0, kept
    for transition in transitions:
        for event in transition.events():
            event_id += 1
            if event_id <= kept:
                continue
            if left and event is left[0]:
                left.pop(0)
                last_carried = event_id
            else:
                beyond.append(Numbered(event_id, event))
    return Cut(kept, carried, last_carried, tuple(beyond))


def _first(every: Iterable[Activation], is_it: Callable[[Activation], bool]) -> Activation | None:
    return next((one for one in every if is_it(one)), None)


def _failures_of(one: Activation) -> set[int]:
    return {each.scheduled_event_id for each in one.inputs if isinstance(each, events.ActivityFailed)}


def _failed_activity(failure: Failure | None) -> int | None:
    """The event of the activity of this run whose failure is at the bottom of it."""
    while failure is not None and failure.kind in {"application", "activity"}:
        if failure.kind == "activity":
            scheduled = (failure.attributes or {}).get("scheduled_event_id")
            return scheduled if isinstance(scheduled, int) else None
        failure = failure.cause
    return None
