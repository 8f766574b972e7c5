"""What a round is to write: rows gathered by statement, written by a single execution of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, TypeAlias

from pledger.engine.port.operations import TRIED_MAX, Append
from pledger.engine.port.streams import WEIGHT_MAX
from pledger.store.postgres import news
from pledger.store.postgres.found import Run

#: Lines of the attempt log that are kept for each activity: the newest ones.
ATTEMPTS_MAX: Final = 100

#: Of these, two transactions may write the same rows: both in one order.
_ORDERS: Final[Mapping[str, Callable[[tuple[Any, ...]], Any]]] = {
    "insert_chains": itemgetter(1, 2),
    "insert_messages": itemgetter(0),
}

Row: TypeAlias = tuple[Any, ...]

#: Statements that take a row for each of their array parameters, in the order in which they are written.
BY_ROW: Final = (
    "insert_chains",
    "outlive_runs",
    "renew_chains",
    "insert_segments",
    "copy_histories",
    "copy_uses",
    "hand_on_pauses",
    "hand_on_losses",
    "drop_starts",
    "revive_signals",
    "insert_resets",
    "insert_runs",
    "insert_children",
    "step_runs",
    "change_runs",
    "drop_attributes",
    "insert_attributes",
    "drop_memos",
    "write_memos",
    "write_terms",
    "begin_phases",
    "end_phases",
    "insert_transitions",
    "insert_messages",
    "deliver_messages",
    "put_tasks",
    "drop_tasks",
    "cancel_tasks",
    "finish_tasks",
    "hand_out_tasks",
    "hand_out_slots",
    "beat_tasks",
    "log_attempts",
    "keep_pieces",
    "use_pieces",
    "extend_streams",
    "publish_values",
    "insert_successors",
    "hand_on_attributes",
    "hand_on_memos",
    "close_runs",  # the last: nothing that is written beside it stays to be done
)


class Writes:
    """rows: of each statement of BY_ROW. let_go: open runs that nobody owns any more. due: ownerless runs that have
    news; woken: owned ones. tried: of blocked runs, and by which code. forgotten: consumed messages. partings: runs
    that end, and may have children that are not to outlive them. published: (chain_key, topic, weight, and what stands
    in a row of `publish_values` besides). said: what other processes are told once it is
    committed."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Row]] = {}
        self.let_go: list[int] = []
        self.tried: list[tuple[int, str]] = []
        self.forgotten: list[int] = []
        self.partings: list[int] = []
        self.published: list[Row] = []
        self.due: set[int] = set()
        self.woken: set[int] = set()
        self.said: dict[str, None] = {}

    def add(self, statement: str, *row: Any) -> None:
        self.rows.setdefault(statement, []).append(row)

    def wake(self, run: Run, *, owned: bool) -> None:
        """There is news for the run."""
        if owned:
            self.woken.add(run.run_key)
            self.said[news.for_session(run.owner)] = None
        else:
            self.due.add(run.run_key)
            self.said[news.for_queue(run.namespace, run.task_queue)] = None

    def queue_has_work(self, namespace: str, task_queue: str) -> None:
        self.said[news.for_queue(namespace, task_queue)] = None

    def slots_are_free(self, namespace: str) -> None:
        self.said[news.for_limits(namespace)] = None

    def has_closed(self) -> None:
        self.said[news.OF_CLOSED] = None

    def statements(self, channel: str, name: str) -> Iterator[tuple[str, Sequence[Any]]]:
        """Each with its parameters, in the order in which they are to be executed. What is said is not among them, but
        for what a statement alone finds out: it says that by the channel, as the news of the handle of that name."""
        if self.forgotten:
            yield "forget_messages", [self.forgotten]
        self.rows.update(_placed(self.published))
        for statement in BY_ROW:
            if rows := self.rows.get(statement):
                if statement in _ORDERS:
                    rows.sort(key=_ORDERS[statement])  # stable: those of one chain stay in the order of their senders
                yield statement, [*columns(rows), *((channel, name) if statement == "close_runs" else ())]
        if self.tried:
            yield "note_tries", [*columns(self.tried), TRIED_MAX]
        for statement, run_keys in (
            ("due_runs", sorted(self.due)),
            ("insert_wakes", sorted(self.woken)),
            ("drop_wakes", self.let_go),
            ("insert_partings", self.partings),
        ):
            if run_keys:
                yield statement, [run_keys]
        yield from _trimmed(self.rows)


def _placed(published: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of what is published: of each stream by how much it grows, and of each value how far from its end it
    stands."""
    ends: dict[tuple[int, str], tuple[int, int, int]] = {}
    values: list[Row] = []
    for chain_key, topic, weight, *rest in reversed(published):
        count, heavy, newest_ms = ends.get((chain_key, topic), (0, 0, rest[-2]))
        ends[chain_key, topic] = count + 1, heavy + weight, newest_ms
        values.append((chain_key, topic, count + 1, heavy + weight, *rest))
    return {"extend_streams": [(*stream, *end) for stream, end in ends.items()], "publish_values": values}


def _trimmed(rows: Mapping[str, list[Row]]) -> Iterator[tuple[str, Sequence[Any]]]:
    """What takes off the lines, and the values, that are too many."""
    if lines := rows.get("log_attempts"):
        yield "trim_attempts", [*columns(sorted({row[:2] for row in lines})), ATTEMPTS_MAX]
    if streams := rows.get("extend_streams"):
        yield "trim_streams", [*columns([row[:2] for row in streams]), WEIGHT_MAX]


def closing_row(op: Append) -> Row:
    """What `close_runs` takes of an owner's last step."""
    transition = op.transition
    place = (op.run_key, op.fence, op.expected_event, op.last_event, transition.first_event_id)
    return (*place, transition.body, transition.checksum, op.closed, op.time_ms, True)


def columns(rows: Sequence[Row]) -> list[list[Any]]:
    """What a statement takes: a list for each column."""
    return [list(column) for column in zip(*rows, strict=True)]
