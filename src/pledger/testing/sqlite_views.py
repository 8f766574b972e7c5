"""The ledger in a SQLite file as an auditor sees it: row by row in the midst of a transaction, or all of it at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from pledger.engine.port.filters import attribute_of
from pledger.engine.port.pauses import Pause
from pledger.engine.port.records import AttemptRecord, Message, Request, ResetRow, RunRow, SessionRow, TaskRow
from pledger.engine.port.streams import StreamValue
from pledger.history.transition import StoredTransition
from pledger.store.labels import grouped
from pledger.store.memory import State
from pledger.store.memory.state import Link, Stream
from pledger.store.sqlfiles import load_queries
from pledger.store.sqlite.pauses import pause_of
from pledger.store.sqlite.tasks import task_row
from pledger.store.sqlite.writer import Rows

_LEDGER: Final = load_queries("pledger.store.sqlite", "ledger")
_MAILBOX: Final = load_queries("pledger.store.sqlite", "mailbox")
_TASKS: Final = load_queries("pledger.store.sqlite", "tasks")
_SESSIONS: Final = f"SELECT {', '.join(SessionRow.__struct_fields__)} FROM pledger_session"  # noqa: S608 - names of columns
_HISTORIES: Final = (
    "SELECT run_key, first_event_id, body, checksum FROM pledger_history ORDER BY run_key, first_event_id"
)
_MESSAGES: Final = (
    "SELECT chain_key, keep_id, message_key, kind, message_id, name, body, sent_ms, verdict, event_id "
    "FROM pledger_message ORDER BY message_key"
)
_ATTEMPTS: Final = (
    "SELECT run_key, event_id, attempt, outcome, started_ms, ended_ms, worker, failure FROM pledger_attempt "
    "ORDER BY attempt_key"
)
_PIECE_USES: Final = "SELECT run_key, name FROM pledger_piece_use JOIN pledger_piece USING (piece_key)"
_REQUESTS: Final = "SELECT request_key, run_key, kind, name, body, expires_ms, answer, failure FROM pledger_request"
_RESETS: Final = (
    'SELECT run_key, run_id, base_key, base_run_id, event_id, kept, how, reason, "by", reset_ms FROM pledger_reset'
)
_STREAMS: Final = (
    "SELECT stream_key, chain_key, topic, next_position, weight, published_ms, forgotten FROM pledger_stream "
    "ORDER BY stream_key"
)
_PUBLISHED: Final = (
    "SELECT value.stream_key, value.weight_before, value.position, run.run_id, value.event_id, value.attempt, "
    "value.published_ms, value.body FROM pledger_published AS value JOIN pledger_run AS run USING (run_key) "
    "ORDER BY value.stream_key, value.position"
)
_PAUSES: Final = (
    "SELECT pause_key, namespace, kind, name, run_key, workflow_id, reason, paused_by, paused_ms, rate, backlog, "
    "released, tokens, filled_ms FROM pledger_pause ORDER BY pause_key"
)
_ATTRIBUTES: Final = (
    "SELECT run_key, name, kind, words, whole, real FROM pledger_attribute ORDER BY run_key, name, position"
)
_PHASES: Final = (
    "SELECT run_key, event_id, kind, name, owner, deadline_ms FROM pledger_phase ORDER BY run_key, deadline_ms"
)
_TERMS: Final = (
    "SELECT run.run_key, memo.memo, run.answers_for, run.deadline_ms, 0, 0 "
    "FROM pledger_run AS run LEFT JOIN pledger_memo AS memo USING (run_key)"
)

_CHILDREN: Final = (
    "SELECT run.run_key, run.run_id FROM pledger_child AS child CROSS JOIN pledger_run AS run USING (chain_key) "
    "WHERE child.parent_key = ? AND run.segment = 1"
)
_LINKS: Final = (
    "SELECT child.chain_key, chain.namespace, chain.workflow_id, child.parent_key, child.event_id, child.policy "
    "FROM pledger_child AS child JOIN pledger_chain AS chain USING (chain_key) "
    "ORDER BY child.parent_key, child.event_id"
)

Query: TypeAlias = Callable[[str, tuple[Any, ...]], Rows]


class SqliteView:
    """rows: runs one query."""

    def __init__(self, rows: Query) -> None:
        self._rows = rows

    def run(self, run_key: int) -> RunRow | None:
        found = self._rows(_LEDGER["read_run"], (run_key,))
        return RunRow(*found[0]) if found else None

    def current(self, run_key: int) -> RunRow | None:
        found = self._rows(_LEDGER["read_current"], (run_key,))
        return RunRow(*found[0]) if found else None

    def tasks(self, run_key: int) -> Mapping[int, TaskRow]:
        tasks = map(task_row, self._rows(_TASKS["read_tasks"], (run_key,)))
        return {task.event_id: task for task in tasks}

    def has_mail(self, chain_key: int) -> bool:
        return bool(self._rows(_MAILBOX["read_inbox"], (chain_key,)))

    def children(self, run_key: int) -> Sequence[tuple[int, str]]:
        return [(key, run_id) for key, run_id in self._rows(_CHILDREN, (run_key,))]

    def history(self, run_key: int) -> list[StoredTransition]:
        sql = "SELECT first_event_id, body, checksum FROM pledger_history WHERE run_key = ? ORDER BY first_event_id"
        return [StoredTransition(*row) for row in self._rows(sql, (run_key,))]

    def open_runs(self) -> Iterable[int]:
        sql = "SELECT run_key FROM pledger_run WHERE closed_ms IS NULL ORDER BY run_key"
        return [run_key for (run_key,) in self._rows(sql, ())]

    def sessions(self) -> Collection[int]:
        return {row[0] for row in self._rows(_SESSIONS, ())}

    def pauses(self) -> Collection[Pause]:
        return [pause_of(row) for row in self._rows(_PAUSES, ())]


class Moment:
    """One run as it was at one instant of a transaction. with_history: whether that is wanted too."""

    def __init__(self, view: SqliteView, run_key: int, *, with_history: bool = False) -> None:
        self._history = view.history(run_key) if with_history else []
        self._run = self._current = view.run(run_key)
        if self._run is not None and self._run.status != "running":
            self._current = view.current(run_key)
        self._tasks = view.tasks(run_key)
        self._children = view.children(run_key)
        self._has_mail = self._run is not None and view.has_mail(self._run.chain_key)

    def run(self, _: int) -> RunRow | None:
        return self._run

    def current(self, _: int) -> RunRow | None:
        return self._current

    def tasks(self, _: int) -> Any:
        return self._tasks

    def has_mail(self, _: int) -> bool:
        return self._has_mail

    def children(self, _: int) -> Sequence[tuple[int, str]]:
        return self._children

    def history(self, _: int) -> list[StoredTransition]:
        return self._history

    def open_runs(self) -> list[int]:
        return []

    def sessions(self) -> set[int]:
        return set()

    def pauses(self) -> list[Pause]:
        return []


def read_state(rows: Query, clock: Callable[[], int]) -> State:
    """All of it, as dictionaries; empty where there are no tables yet."""
    state = State(clock=clock)
    if rows("SELECT 1 FROM sqlite_schema WHERE name = 'pledger_run'", ()):
        _read_runs(state, rows)
        _read_messages(state, rows)
        _read_tasks(state, rows)
        _read_labels(state, rows)
        state.sessions = {row[0]: SessionRow(*row) for row in rows(_SESSIONS, ())}
        state.leftovers = {run_key for (run_key,) in rows("SELECT run_key FROM pledger_leftover", ())}
        state.wakes = {run_key for (run_key,) in rows("SELECT run_key FROM pledger_wake", ())}
        state.pauses = {row[0]: pause_of(row) for row in rows(_PAUSES, ())}
        state.resets = {row[0]: ResetRow(*row) for row in rows(_RESETS, ())}
        state.requests = {row[0]: Request(*row) for row in rows(_REQUESTS, ())}
        state.pieces = dict(rows("SELECT name, body FROM pledger_piece", ()))
        for run_key, name in rows(_PIECE_USES, ()):
            state.piece_uses.setdefault(run_key, set()).add(name)
        state.partings = {run_key: None for (run_key,) in rows("SELECT run_key FROM pledger_parting", ())}
        _read_streams(state, rows)
        for chain_key, namespace, workflow_id, *link in rows(_LINKS, ()):
            state.links[chain_key] = Link((namespace, workflow_id), *link)
            state.children.setdefault(link[0], []).append(chain_key)
    return state


def read_tables(rows: Query) -> dict[str, Rows]:
    """The tables of users by name, with their rows in the order in which they came."""
    names = rows("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT GLOB 'pledger_*'", ())
    return {name: rows(f'SELECT * FROM "{name}" ORDER BY rowid', ()) for (name,) in names}  # noqa: S608 - it is there


def _read_runs(state: State, rows: Query) -> None:
    for row in rows("SELECT * FROM pledger_run_row ORDER BY run_key", ()):
        run = RunRow(*row)
        state.runs[run.run_key] = run
        state.newest.setdefault((run.namespace, run.workflow_id), []).append(run.run_key)
        state.histories[run.run_key] = []
        state.inboxes[run.chain_key] = {}
        if run.closed_ms is None:
            state.open_runs.add(run.run_key)
    for run_key, *fields in rows(_HISTORIES, ()):
        state.histories[run_key].append(StoredTransition(*fields))


def _read_labels(state: State, rows: Query) -> None:
    for run_key, labels in grouped(rows(_ATTRIBUTES, ()), rows(_PHASES, ()), rows(_TERMS, ())).items():
        if labels.attributes:
            state.attributes[run_key] = {each.name: attribute_of(each) for each in labels.attributes}
        if labels.memo is not None:
            state.memos[run_key] = labels.memo
        state.terms[run_key] = labels.answers_for, labels.deadline_ms
        if labels.phases:
            state.phases[run_key] = {each.event_id: each for each in labels.phases}


def _read_messages(state: State, rows: Query) -> None:
    for chain_key, keep_id, *fields in rows(_MESSAGES, ()):
        message = Message(*fields)
        state.inboxes[chain_key][message.message_key] = message
        state.message_keys[chain_key, message.message_id] = message.message_key
        if not keep_id:
            state.unkept.add(message.message_key)


def _read_streams(state: State, rows: Query) -> None:
    by_key: dict[int, Stream] = {}
    for stream_key, chain_key, topic, following, weight, published_ms, forgotten in rows(_STREAMS, ()):
        stream = by_key[stream_key] = Stream(following, weight, published_ms, is_forgotten=bool(forgotten))
        state.streams.setdefault(chain_key, {})[topic] = stream
    for stream_key, before, *value in rows(_PUBLISHED, ()):
        by_key[stream_key].values.append((before, StreamValue(*value)))


def _read_tasks(state: State, rows: Query) -> None:
    for row in rows("SELECT * FROM pledger_placed_task ORDER BY run_key, event_id", ()):
        task = task_row(row)
        state.tasks.setdefault(task.run_key, {})[task.event_id] = task
    for row in rows(_ATTEMPTS, ()):
        state.attempts.setdefault(row[0], []).append(AttemptRecord(*row))
