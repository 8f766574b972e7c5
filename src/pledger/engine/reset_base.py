"""What a reset starts from, as it was read: a run, and those of its chain that have come after it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pledger import errors
from pledger.engine.kept import check_kept
from pledger.history import events
from pledger.history.prefix import Numbered
from pledger.history.transition import Transition

if TYPE_CHECKING:
    from pledger.engine.port.records import AttemptRecord, Message, ResetRow, RunRow, TaskRow
    from pledger.engine.port.verbs import Store


@dataclass(frozen=True, slots=True)
class ReadRun:
    """A run as it was read. Of a damaged history there is what stands before the damage."""

    row: RunRow
    transitions: Sequence[Transition]
    tasks: Sequence[TaskRow]
    attempts: Sequence[AttemptRecord]


@dataclass(frozen=True, slots=True)
class Later(ReadRun):
    """One of the chain that has come after the base. kept: the last of its events that are another run's. is_reset:
    whether it went on from another one's history."""

    kept: int
    is_reset: bool

    def own(self) -> Iterator[Numbered]:
        """What is recorded of it, beyond what it has taken over."""
        for event_id, event in enumerate(events_of(self.transitions), 1):
            if event_id > self.kept:
                yield Numbered(event_id, event)


@dataclass(frozen=True, slots=True)
class Base(ReadRun):
    """newest: the newest run of the workflow id, which may be the same. heads: the checksum of each transition.
    newest_ms: when the newest transition of `newest` was. before: the run that it goes on from, where no worker has
    taken it up since. later: the runs of the chain that have come after it, the newest last. taken_before: ids of what
    the runs before it were told, where there are later ones: those may have been given it again, and whoever goes on
    from the base has it behind it."""

    newest: RunRow
    heads: Sequence[bytes]
    damage: errors.CorruptHistoryError | None
    undelivered: Sequence[Message]
    newest_ms: int
    before: str | None
    later: Sequence[Later]
    taken_before: frozenset[str]


@dataclass(frozen=True, slots=True)
class _History:
    transitions: list[Transition]
    heads: list[bytes]
    damage: errors.CorruptHistoryError | None


async def read_base(store: Store, row: RunRow) -> Base:
    """Raises NoLongerKeptError for a run that retention has removed."""
    check_kept(row)
    newest = await store.find_run(row.namespace, row.workflow_id)
    assert newest is not None
    found = await _read_history(store, row)
    later: list[Later] = []
    taken_before: set[str] = set()
    if newest.chain_key == row.chain_key and newest.run_key != row.run_key:
        runs = await store.chain_runs([row.chain_key])
        later = [await _read_later(store, each) for each in runs if each.run_key > row.run_key]
        for each in runs:
            if each.run_key < row.run_key:
                taken_before |= message_ids(events_of((await _read_history(store, each)).transitions))
    ends = [*found.transitions[-1:], *(last for run in later[-1:] for last in run.transitions[-1:])]
    return Base(
        row,
        found.transitions,
        await store.read_tasks(row.run_key),
        await store.read_attempts(row.run_key),
        newest,
        found.heads,
        found.damage,
        await store.read_undelivered(row.chain_key),
        max((each.time_ms for each in ends), default=0),
        _not_taken_up(found.transitions, await store.read_resets(row.run_key), row.run_key),
        later,
        frozenset(taken_before),
    )


async def _read_later(store: Store, row: RunRow) -> Later:
    links = [each for each in await store.read_resets(row.run_key) if each.run_key == row.run_key]
    return Later(
        row,
        (await _read_history(store, row)).transitions,
        await store.read_tasks(row.run_key),
        await store.read_attempts(row.run_key),
        links[0].kept if links else 0,
        bool(links),
    )


async def _read_history(store: Store, row: RunRow) -> _History:
    from pledger.engine.loading import HistoryReader  # noqa: PLC0415 - a part of the engine

    reader = HistoryReader(store, row.run_key, row.run_id)
    found = _History([], [], None)
    try:
        while reader.last_event < row.last_event and (page := await store.read_history(row.run_key, reader.last_event)):
            for each in page:
                found.transitions.append(reader.take(each))
                found.heads.append(reader.head)
        if reader.last_event <= row.last_event:  # beyond it, the run has gone on since its row was read
            reader.check_end(row)
    except errors.CorruptHistoryError as error:
        check_kept(await store.read_run(row.run_key))  # it may have been removed while it was read
        return _History(found.transitions, found.heads, error)
    return found


def _not_taken_up(transitions: Iterable[Transition], links: Iterable[ResetRow], run_key: int) -> str | None:
    """What waits for a worker, of a run that was reset, is in none of its events yet."""
    bases = {each.base_run_id for each in events_of(transitions) if isinstance(each, events.RunReset)}
    return next((each.base_run_id for each in links if each.run_key == run_key and each.base_run_id not in bases), None)


def until(transitions: Sequence[Transition], last_event: int) -> Sequence[Transition]:
    """Those up to this event."""
    event_id = 0
    for position, each in enumerate(transitions):
        event_id += len(each.inputs) + len(each.commands)
        if event_id > last_event:
            return transitions[:position]
    return transitions


def message_ids(told: Iterable[events.Event]) -> set[str]:
    """Of the messages among them."""
    ids: set[str] = set()
    for each in told:
        match each:
            case events.SignalReceived():
                ids.add(each.message_id)
            case events.UpdateAccepted():
                ids.add(each.update_id)
            case events.CancelRequested():
                ids.add(each.request_id)
            case _:
                pass
    return ids


def events_of(transitions: Iterable[Transition]) -> Iterator[events.Event]:
    """In their order: the first of them is event 1."""
    return (event for each in transitions for event in each.events())
