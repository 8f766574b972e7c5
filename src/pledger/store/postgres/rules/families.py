"""What a transition of one run does to other runs, and what it tells its parent.

Whom it concerns is known by ids, and locks are taken by keys: so that is looked up before, without a lock (`Resolver`).
Of a parent it never changes; of the addressee of a message the row that is locked then says what has become of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from pledger.engine.port.answers import Existing, Started
from pledger.engine.port.operations import Append, Operation, StartRun, Terminate
from pledger.engine.port.posts import NOTICE, Post, StartChild, Verdict, notice_id
from pledger.engine.port.records import RunRow
from pledger.store.postgres import news
from pledger.store.postgres.found import Found, Needs
from pledger.store.postgres.rules.mailbox import wake
from pledger.store.postgres.writes import Writes


class StartRule(Protocol):
    def __call__(self, op: StartRun, found: Found, writes: Writes) -> Any: ...


# Before the locks -----------------------------------------------------------------------------------------------------


class Resolver:
    """Of a batch: the messages to other runs, and the ends that a parent may have to be told of."""

    def __init__(self, batch: Sequence[Operation]) -> None:
        self.posts = [each for op in batch for each in posts_of(op) if isinstance(each, Post)]
        self.ends = [op for op in batch if isinstance(op, Append | Terminate) and op.report is not None]

    def questions(self) -> Iterator[tuple[str, Sequence[Any]]]:
        if posts := self.posts:
            ids = [[each.namespace for each in posts], [each.workflow_id for each in posts]]
            yield "resolve_addressees", [*ids, [each.run_id for each in posts]]
        if self.ends:
            yield "resolve_parents", [[each.run_key for each in self.ends]]

    def take(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        if statement == "resolve_addressees":
            keys = dict(rows)
            for place, post in enumerate(self.posts, 1):
                post.run_key = keys.get(place)
        else:
            parents = {run_key: (parent_key, event_id, run_id) for run_key, parent_key, event_id, run_id in rows}
            for end in self.ends:
                end.parent = parents.get(end.run_key)


def posts_of(op: Operation) -> Sequence[StartChild | Post]:
    if isinstance(op, StartRun):
        return () if op.first is None else op.first.posts
    return op.posts if isinstance(op, Append) else ()


def touched_by(op: Operation) -> Iterator[int]:
    """The other runs that it tells something."""
    yield from (each.run_key for each in posts_of(op) if isinstance(each, Post) and each.run_key is not None)
    if isinstance(op, Append | Terminate) and op.parent is not None:
        yield op.parent[0]


def starts_of(op: Operation) -> Iterator[tuple[str, str]]:
    """The workflow ids of the children that it starts."""
    for each in posts_of(op):
        if isinstance(each, StartChild):
            yield each.start.namespace, each.start.workflow_id


# The rules ------------------------------------------------------------------------------------------------------------


def needs_of(op: Append | Terminate, needs: Needs) -> None:
    if op.parent is not None:
        needs.addressees.add(op.parent[0])
    if isinstance(op, Append) and op.posts:
        needs_of_posts(op.posts, needs)
        needs.addressees.add(op.run_key)  # its chain: it gets notices


def needs_of_posts(posts: Sequence[StartChild | Post], needs: Needs) -> None:
    for post in posts:
        if isinstance(post, StartChild):
            needs.starts.append((post.start.namespace, post.start.workflow_id))
        elif post.run_key is not None:
            needs.addressees.add(post.run_key)
            needs.messages.append((post.run_key, post.message_id))
            needs.room = max(needs.room, post.room)


def send_all(op: Append, chain_key: int, found: Found, writes: Writes, start_run: StartRule) -> None:
    """What the transition does to other runs. chain_key: the sender's. start_run: the rule for starts."""
    for post in op.posts:
        if isinstance(post, StartChild):
            verdict, body = _start(op.run_key, post, found, writes, start_run)
        else:
            verdict, body = _post(post, op.time_ms, found, writes), b""
        if post.notice_id:
            _notify(chain_key, post.notice_id, verdict, body, op.time_ms, writes)


def _start(
    parent_key: int, post: StartChild, found: Found, writes: Writes, start_run: StartRule
) -> tuple[Verdict, bytes]:
    start = post.start
    answer = start_run(start, found, writes)
    if isinstance(answer, Existing):
        return "taken", answer.run.run_id.encode()
    assert isinstance(answer, Started)
    writes.add("insert_children", answer.chain_key, parent_key, post.event_id, post.policy)
    place = start.namespace, start.workflow_id
    generation = found.newest[place][0] if place in found.newest else 0
    # For what the same transition asks of this child, or of its id.
    found.newest[place] = generation + 1, start.workflow_type, _born(answer, start)
    found.born[start.run_id] = answer.chain_key
    return "started", start.run_id.encode()


def _born(answer: Started, start: StartRun) -> RunRow:
    who = (answer.run_key, answer.chain_key, start.namespace, start.workflow_id, start.run_id)
    what = (start.workflow_type, start.task_queue, "running", start.input_digest, start.started_ms)
    return RunRow(*who, *what, None, 0, bytes(8), 0, None, 0, 0, None, None)  # type: ignore[arg-type] # in their order


def _post(post: Post, now_ms: int, found: Found, writes: Writes) -> Verdict:
    message = (post.kind, post.message_id, post.name, post.body, now_ms, post.kind == "cancel")
    run = None if post.run_key is None else found.addressees.get(post.run_key)
    if run is None:
        chain_key = found.born.get(post.run_id or "")
        if chain_key is None:
            return "not_found"
        writes.add("insert_messages", chain_key, *message)  # it is due anyway
        return "sent"
    if run.status != "running":
        return "closed"
    length = found.lengths[run.chain_key]
    if length >= post.room:
        return "inbox_full"
    found.lengths[run.chain_key] = length + 1
    writes.add("insert_messages", run.chain_key, *message)
    wake(run, found, writes)
    return "sent"


def _notify(chain_key: int, message_id: str, verdict: Verdict, body: bytes, now_ms: int, writes: Writes) -> None:
    writes.add("insert_messages", chain_key, NOTICE, message_id, verdict, body, now_ms, False)  # noqa: FBT003


def part(op: Append | Terminate, found: Found, writes: Writes, *, has_dependants: bool) -> None:
    """The run ends: its parent is told, if it has one that is open, and its children are noted."""
    if op.parent is not None and op.report is not None:
        parent_key, event_id, run_id = op.parent
        parent = found.addressees.get(parent_key)
        # Another run that goes on for the parent is not the one that waits.
        if parent is not None and parent.run_key == parent_key and parent.status == "running":
            _notify(parent.chain_key, notice_id(run_id, event_id, "end"), "ended", op.report, op.time_ms, writes)
            wake(parent, found, writes)
    if has_dependants:
        writes.partings.append(op.run_key)
        writes.said[news.OF_ANYTHING] = None
