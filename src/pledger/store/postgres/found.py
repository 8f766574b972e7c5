"""What a round looks at: the rows it has to lock and to read, and what was found there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple

from pledger.engine.port.records import RunRow, RunStatus

TaskKey = tuple[int, int]
"""(run_key, event_id)."""

RunId = tuple[str, str]
"""(namespace, workflow_id)."""

Query = tuple[str, Sequence[Any]]
"""A statement, and its parameters."""


class Run(NamedTuple):
    """As much of the row of a run as decisions need."""

    run_key: int
    chain_key: int
    namespace: str
    task_queue: str
    status: RunStatus
    owner: int | None
    fence: int
    last_event: int
    head: bytes
    next_ms: int | None
    claims: int


class Task(NamedTuple):
    """limited: its attempt takes slots."""

    run_key: int
    event_id: int
    state: Literal["queued", "started", "done"]
    attempt: int
    owner: int | None
    cancel_requested: bool
    limited: bool
    expires_ms: int | None


@dataclass(slots=True)
class Needs:
    """Keys, by what becomes of the rows: sessions that must stand, runs to change, those among them to release or to
    close, runs to send to, tasks to change, workflow ids to start, messages to send (run_key, message_id), attempts
    that publish (run_key, event_id, attempt). room: the longest inbox that makes a difference."""

    sessions: set[int] = field(default_factory=set)
    runs: set[int] = field(default_factory=set)
    released: set[int] = field(default_factory=set)
    closed: set[int] = field(default_factory=set)
    addressees: set[int] = field(default_factory=set)
    tasks: set[TaskKey] = field(default_factory=set)
    starts: list[RunId] = field(default_factory=list)
    messages: list[tuple[int, str]] = field(default_factory=list)
    publishers: set[tuple[int, int, int]] = field(default_factory=set)
    room: int = 0

    def readdressed(self, newest: Mapping[int, int]) -> Needs:
        """The same, where what is sent to some runs goes to those that go on for them."""
        addressees = {newest.get(each, each) for each in self.addressees}
        messages = [(newest.get(each, each), message_id) for each, message_id in self.messages]
        return replace(self, addressees=addressees, messages=messages)

    def locks(self) -> Iterator[Query]:
        """In the one order in which everybody locks."""
        if self.sessions:
            yield "lock_sessions", [sorted(self.sessions)]
        if let_go := self.released | self.closed:
            # All in one order: so who sends besides locks no less.
            yield "lock_chains", [sorted(let_go | self.addressees)]
        elif self.addressees:
            yield "share_chains", [sorted(self.addressees)]
        if self.runs or self.addressees:
            yield "lock_runs", [sorted(self.runs), sorted(self.addressees)]
        if self.tasks:
            keys = sorted(self.tasks)
            yield "lock_tasks", [[run_key for run_key, _ in keys], [event_id for _, event_id in keys]]

    def reads(self) -> Iterator[Query]:
        """Under these locks."""
        if self.addressees:
            yield "read_addressees", [sorted(self.addressees)]
        if self.released:
            yield "runs_with_mail", [sorted(self.released)]
        if self.messages:
            yield "known_messages", [[key for key, _ in self.messages], [id_ for _, id_ in self.messages]]
            yield "inbox_lengths", [sorted({key for key, _ in self.messages}), self.room]
        if self.starts:
            yield "newest_runs", [[ns for ns, _ in self.starts], [id_ for _, id_ in self.starts]]
            yield "new_keys", [len(self.starts)]
        if self.publishers:
            yield "published_numbers", [list(column) for column in zip(*sorted(self.publishers), strict=True)]


@dataclass(slots=True)
class Found:
    """sessions: those that stand. runs: the rows that are locked, by key. addressees: those that are only read.
    with_mail: runs for which something waits. known: (chain_key, message_id) of messages that are there. lengths: of
    inboxes, by chain. newest: by workflow id, with the generation of its chain and what that was started as. keys: new
    ones for chain and run. born: the chains of children that the round itself starts, by run id. published: the chain
    of each attempt that publishes, and how many of its values are there."""

    sessions: set[int] = field(default_factory=set)
    runs: dict[int, Run] = field(default_factory=dict)
    addressees: dict[int, Run] = field(default_factory=dict)
    tasks: dict[TaskKey, Task] = field(default_factory=dict)
    with_mail: set[int] = field(default_factory=set)
    known: set[tuple[int, str]] = field(default_factory=set)
    lengths: dict[int, int] = field(default_factory=dict)
    newest: dict[RunId, tuple[int, str, RunRow]] = field(default_factory=dict)
    keys: list[tuple[int, int]] = field(default_factory=list)
    born: dict[str, int] = field(default_factory=dict)
    published: dict[tuple[int, int, int], tuple[int, int]] = field(default_factory=dict)

    def ended(self) -> set[int]:
        """Addressees that another run may go on for."""
        return {run.run_key for run in self.addressees.values() if run.status != "running"}

    def readdress(self, newest: Mapping[int, int]) -> None:
        """As in `Needs`: whoever is asked for is found under the key of old."""
        self.addressees.update((old, self.addressees[new]) for old, new in newest.items())

    def take(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """What a statement of `Needs` gave."""
        _TAKERS[statement](self, rows)


def _take_newest(found: Found, rows: Sequence[tuple[Any, ...]]) -> None:
    for generation, first_type, *row in rows:
        run = RunRow(*row)
        found.newest[run.namespace, run.workflow_id] = generation, first_type, run


#: By statement; of those that only lock nothing is taken.
_TAKERS: Final[Mapping[str, Callable[[Found, Sequence[tuple[Any, ...]]], None]]] = {
    "share_chains": lambda _, __: None,
    "lock_chains": lambda _, __: None,
    "lock_sessions": lambda found, rows: found.sessions.update(key for (key,) in rows),
    "lock_runs": lambda found, rows: found.runs.update((row[0], Run(*row)) for row in rows),
    "read_addressees": lambda found, rows: found.addressees.update((row[0], Run(*row)) for row in rows),
    "lock_tasks": lambda found, rows: found.tasks.update(((row[0], row[1]), Task(*row)) for row in rows),
    "runs_with_mail": lambda found, rows: found.with_mail.update(key for (key,) in rows),
    "known_messages": lambda found, rows: found.known.update((row[0], row[1]) for row in rows),
    "inbox_lengths": lambda found, rows: found.lengths.update((row[0], row[1]) for row in rows),
    "newest_runs": _take_newest,
    "published_numbers": lambda found, rows: found.published.update((row[:3], row[3:]) for row in rows),
    # Taken from the end: of one batch, who started first has the lowest keys.
    "new_keys": lambda found, rows: found.keys.extend((row[0], row[1]) for row in reversed(rows)),
}
