"""What is forgotten of finished chains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from pledger.engine.port.posts import NOTICE
from pledger.engine.port.records import RunRow
from pledger.engine.port.retention import EVENTS_MAX, Finished, Place
from pledger.store.memory import labels, pieces, streams
from pledger.store.memory.state import State

#: Messages that no person has sent, and that nobody looks for once the run is over.
_NOBODYS: Final = frozenset({"start", NOTICE})


def take_duty(state: State, namespace: str, name: str, session_key: int, hold_ms: int) -> bool:
    owner, until_ms = state.duties.get((namespace, name), (None, 0))
    now = state.clock()
    if owner != session_key and until_ms > now:
        return False
    state.duties[namespace, name] = session_key, now + hold_ms
    return True


def leave_duty(state: State, namespace: str, name: str, session_key: int, rest_ms: int) -> None:
    owner, _ = state.duties.get((namespace, name), (None, 0))
    if owner == session_key:
        state.duties[namespace, name] = None, state.clock() + rest_ms


def finished_types(state: State, namespace: str) -> list[str]:
    # Of a chain that a reset goes on with too: which of them are finished their chains tell.
    closed = (run for run in state.runs.values() if run.closed_ms is not None and not run.is_forgotten)
    found = (run for run in closed if run.namespace == namespace and run.status != "continued_as_new")
    return sorted({run.workflow_type for run in found})


def finished_chains(
    state: State, namespace: str, workflow_type: str, keep_ms: int, after: Place, limit: int
) -> list[Finished]:
    before_ms = state.clock() - keep_ms
    found = [
        Finished(
            run.chain_key,
            run.run_key,
            run.closed_ms or 0,
            sum(part.last_event for part in chain_runs(state, [run.chain_key])),
            any(
                message.verdict == "undelivered" and message.kind not in _NOBODYS
                for message in state.inboxes[run.chain_key].values()
            ),
        )
        for run in _last_runs(state)
        if (run.namespace, run.workflow_type) == (namespace, workflow_type) and (run.closed_ms or 0) < before_ms
    ]
    return sorted((each for each in found if each.place > after), key=lambda each: each.place)[:limit]


def chain_runs(state: State, chain_keys: Sequence[int]) -> list[RunRow]:
    return [run for _, run in sorted(state.runs.items()) if run.chain_key in chain_keys]


def forget_chains(state: State, chain_keys: Sequence[int], keep_ms: int) -> int:
    before_ms = state.clock() - keep_ms
    forgotten = 0
    for chain_key in chain_keys:
        runs = chain_runs(state, [chain_key])
        if any(run.closed_ms is None or run.closed_ms >= before_ms for run in runs):
            continue
        if any(run.run_key in state.partings for run in runs):
            continue
        for run in runs:
            if not run.is_forgotten:
                _forget_run(state, run)
                forgotten += 1
        _forget_messages(state, chain_key)
        streams.forget(state, chain_key, {run.run_key for run in runs})
    return forgotten


def drop_leftovers(state: State, limit: int) -> int:
    if not state.leftovers:
        return streams.drop_some(state, limit)
    run_key = min(state.leftovers)
    history, log = state.histories[run_key], state.attempts.get(run_key, [])
    dropped = min(limit, len(history))
    del history[:dropped]
    lines = min(limit - dropped, len(log))
    del log[:lines]
    if dropped + lines < limit:
        state.leftovers.discard(run_key)
        state.attempts.pop(run_key, None)
    return max(1, dropped + lines)


def _last_runs(state: State) -> list[RunRow]:
    """The last runs of finished chains that are still remembered."""
    last = {run.chain_key: run for run in state.runs.values()}
    return [run for run in last.values() if run.closed_ms is not None and not run.is_forgotten]


def _forget_run(state: State, run: RunRow) -> None:
    state.runs[run.run_key] = replace(run, last_event=0)
    state.losses.pop(run.run_key, None)
    pieces.forget(state, run.run_key)
    for chain_key in state.children.pop(run.run_key, ()):
        del state.links[chain_key]
    labels.forget(state, run.run_key)
    for key in [key for key, request in state.requests.items() if request.run_key == run.run_key]:
        del state.requests[key]
    if run.last_event > EVENTS_MAX:
        state.leftovers.add(run.run_key)
    else:
        state.histories[run.run_key] = []
        state.attempts.pop(run.run_key, None)


def _forget_messages(state: State, chain_key: int) -> None:
    """But for the ids that their senders chose."""
    inbox = state.inboxes[chain_key]
    for key, message in list(inbox.items()):
        if message.kind != "signal" or key in state.unkept:
            state.unkept.discard(key)
            del inbox[key]
            del state.message_keys[chain_key, message.message_id]
        else:
            inbox[key] = replace(message, body=b"")
