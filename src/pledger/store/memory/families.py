"""Parents and children, and what one run sends to another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from pledger.engine.port.answers import Existing, Started
from pledger.engine.port.operations import Append
from pledger.engine.port.posts import NOTICE, Child, Parting, Post, StartChild, Verdict, notice_id
from pledger.engine.port.records import Message, RunRow
from pledger.store.memory import mailbox
from pledger.store.memory.state import Link, State

# With a transition ----------------------------------------------------------------------------------------------------


def send_all(state: State, op: Append, start_run: Callable[[State, Any], Any]) -> None:
    """What the transition does to other runs. start_run: the rule for starts."""
    sender = state.runs[op.run_key]
    for post in op.posts:
        if isinstance(post, StartChild):
            verdict, body = _start(state, sender, post, start_run)
        else:
            verdict, body = _post(state, post, op.time_ms), b""
        if post.notice_id:
            _notify(state, sender, post.notice_id, verdict, body, op.time_ms)


def _start(
    state: State, sender: RunRow, post: StartChild, start_run: Callable[[State, Any], Any]
) -> tuple[Verdict, bytes]:
    answer = start_run(state, post.start)
    if isinstance(answer, Existing):
        return "taken", answer.run.run_id.encode()
    assert isinstance(answer, Started)
    state.links[answer.chain_key] = Link(
        (sender.namespace, post.start.workflow_id), sender.run_key, post.event_id, post.policy
    )
    state.children.setdefault(sender.run_key, []).append(answer.chain_key)
    return "started", post.start.run_id.encode()


def _post(state: State, post: Post, now_ms: int) -> Verdict:
    run = _addressee(state, post)
    if run is None:
        return "not_found"
    if run.status != "running":
        return "closed"
    if mailbox.is_full(state, run.chain_key, post.room):
        return "inbox_full"
    message = Message(next(state.keys), post.kind, post.message_id, post.name, post.body, now_ms)
    mailbox.put_message(state, run.chain_key, message, keep_id=post.kind == "cancel")
    state.wake(run.run_key)
    return "sent"


def _addressee(state: State, post: Post) -> RunRow | None:
    runs = [state.runs[key] for key in state.newest.get((post.namespace, post.workflow_id), [])]
    chains = [run.chain_key for run in runs if post.run_id is None or run.run_id == post.run_id]
    return next((run for run in reversed(runs) if run.chain_key in chains[-1:]), None)


def _notify(state: State, run: RunRow, message_id: str, verdict: Verdict, body: bytes, now_ms: int) -> None:
    if (run.chain_key, message_id) in state.message_keys:
        return  # of a child that ends once more, as another run, before it was heard of
    message = Message(next(state.keys), NOTICE, message_id, verdict, body, now_ms)
    mailbox.put_message(state, run.chain_key, message, keep_id=False)


def part(state: State, run: RunRow, report: bytes | None, now_ms: int, *, has_dependants: bool) -> None:
    """The run ends: its parent is told, if it has one that is open, and its children are noted."""
    link = state.links.get(run.chain_key) if report is not None else None
    if link is not None and report is not None:
        parent = state.runs[link.parent_key]
        if parent.status == "running":
            _notify(state, parent, notice_id(parent.run_id, link.event_id, "end"), "ended", report, now_ms)
            state.wake(parent.run_key)
    if has_dependants and any(state.links[each].policy != "abandon" for each in state.children.get(run.run_key, ())):
        state.partings[run.run_key] = None


# Verbs ----------------------------------------------------------------------------------------------------------------


def read_parent(state: State, chain_key: int) -> RunRow | None:
    link = state.links.get(chain_key)
    return None if link is None else state.runs[link.parent_key]


def read_children(state: State, run_key: int, limit: int, after_event: int) -> list[Child]:
    return list(islice((each for each in _children(state, run_key) if each.event_id > after_event), limit))


def read_parting(state: State, namespace: str, limit: int) -> Parting | None:
    for run_key in state.partings:
        run = state.runs[run_key]
        if run.namespace == namespace:
            left = tuple(islice(_dependants(state, run_key), limit))
            return Parting(run_key, run.workflow_id, run.run_id, run.status, left)
    return None


def settle_parting(state: State, run_key: int, chain_keys: Sequence[int]) -> None:
    for chain_key in chain_keys:
        state.links[chain_key].policy = "abandon"
    if run_key in state.partings and next(_dependants(state, run_key), None) is None:
        del state.partings[run_key]


def _children(state: State, run_key: int) -> Iterator[Child]:
    for chain_key in state.children.get(run_key, ()):
        link = state.links[chain_key]
        runs = (state.runs[key] for key in reversed(state.newest[link.child]))
        yield Child(link.event_id, link.policy, next(run for run in runs if run.chain_key == chain_key))


def _dependants(state: State, run_key: int) -> Iterator[Child]:
    return (each for each in _children(state, run_key) if each.policy != "abandon" and each.row.status == "running")
