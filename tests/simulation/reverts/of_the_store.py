"""Reverts of what a store refuses, in the model of one."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from pledger.engine.port.answers import Answer, Reply
from pledger.engine.port.operations import Append, Operation, PutTask, Send, Terminate
from pledger.engine.port.records import RunRow, TaskRow
from pledger.store.memory import State, mailbox, sessions, store, tasks
from pledger.testing import Caller, Faults
from pledger.testing.handles import SimulatedStore
from tests.reference.workflows import Collector
from tests.simulation.reverts.revert import ANSWERS_LOST, DEATHS, RETRIES_LOST, STANDSTILLS, Revert, several


def no_fence(patch: pytest.MonkeyPatch) -> None:
    def owned_run(self: State, run_key: int, fence: int) -> RunRow | None:
        run = self.runs.get(run_key)
        return run if run is not None and run.owner is not None else None

    patch.setattr(State, "owned_run", owned_run)


def no_compare_and_set(patch: pytest.MonkeyPatch) -> None:
    rule = store._RULES[Append]

    def append(state: State, operation: Append) -> Answer:
        run = state.owned_run(operation.run_key, operation.fence)
        if run is not None:
            operation.expected_event = run.last_event
            inbox = state.inboxes[run.chain_key]  # as a database does: what is gone is not deleted again
            operation.consumed = [taken for taken in operation.consumed if taken[0] in inbox]
        return rule(state, operation)

    patch.setitem(store._RULES, Append, append)


def terminated_whatever_it_is(patch: pytest.MonkeyPatch) -> None:
    def terminate(state: State, operation: Terminate) -> Answer:
        run = state.runs[operation.run_key]
        state.histories[run.run_key].append(operation.transition)
        run = replace(run, last_event=operation.last_event, head=operation.transition.checksum)
        state.close_run(run, operation.status, operation.time_ms)
        return Reply.WON

    patch.setitem(store._RULES, Terminate, terminate)


def messages_are_not_known_again(patch: pytest.MonkeyPatch) -> None:
    def send(state: State, operation: Send) -> Answer:
        run = state.run(operation.run_key)
        state.message_keys.pop((run.chain_key, operation.message_id), None)
        return mailbox.send(state, operation)

    patch.setitem(store._RULES, Send, send)


def no_look_at_the_mail_when_letting_go(patch: pytest.MonkeyPatch) -> None:
    rule = State.let_go

    def let_go(self: State, run: RunRow, due_ms: int | None) -> RunRow:
        return replace(rule(self, run, due_ms), due_ms=due_ms)

    patch.setattr(State, "let_go", let_go)


def retries_overwrite_what_is_there(patch: pytest.MonkeyPatch) -> None:
    def put_task(state: State, operation: PutTask) -> Answer:
        if state.owned_run(operation.task.run_key, operation.fence) is None:
            return Reply.LOST
        tasks.change_tasks(state, operation.task.run_key, (operation.task,), (), ())
        return Reply.WON

    patch.setitem(store._RULES, PutTask, put_task)


def claims_know_no_namespace(patch: pytest.MonkeyPatch) -> None:
    def ownerless(state: State, namespace: str, task_queue: str) -> list[RunRow]:
        runs = [state.runs[run_key] for run_key in state.open_runs]
        return [run for run in runs if (run.owner, run.task_queue) == (None, task_queue)]

    patch.setattr(sessions, "_ownerless", ownerless)


def task_claims_know_no_namespace(patch: pytest.MonkeyPatch) -> None:
    def queued(state: State, namespace: str) -> list[TaskRow]:
        rows = [task for each in state.tasks.values() for task in each.values()]
        return [task for task in rows if task.state == "queued"]

    patch.setattr(tasks, "queued_tasks", queued)


def tasks_are_claimed_without_a_lock(patch: pytest.MonkeyPatch) -> None:
    """What another worker has claimed can be claimed once more."""

    def queued(state: State, namespace: str) -> list[TaskRow]:
        rows = [task for each in state.tasks.values() for task in each.values()]
        return [task for task in rows if task.state in {"queued", "started"} and task.namespace == namespace]

    patch.setattr(tasks, "queued_tasks", queued)


def runs_are_claimed_without_a_lock(patch: pytest.MonkeyPatch) -> None:
    """Two workers own a run, under one fence."""

    def claim_runs(
        state: State, session_key: int, now_ms: int, namespace: str, task_queue: str, codes: Any, limit: int
    ) -> list[RunRow]:
        runs = [state.runs[run_key] for run_key in sorted(state.open_runs)]
        mine = [run for run in runs if (run.namespace, run.task_queue) == (namespace, task_queue)]
        due = [run for run in mine if run.due_ms is not None and run.due_ms <= now_ms and run.owner != session_key]
        claimed = [replace(run, owner=session_key, fence=max(run.fence, 1)) for run in due[:limit]]
        state.runs.update((run.run_key, run) for run in claimed)
        return claimed

    patch.setattr("pledger.store.memory.store.sessions.claim_runs", claim_runs)


def results_are_taken_whoever_brings_them(patch: pytest.MonkeyPatch) -> None:
    """Of an attempt that was counted as lost, and of one that has its result already."""

    def started(state: State, run_key: int, event_id: int, attempt: int, owner: int) -> TaskRow | None:
        row = state.tasks.get(run_key, {}).get(event_id)
        return None if row is None else replace(row, owner=owner)

    patch.setattr(tasks, "_started", started)


def results_stay_in_their_rows(patch: pytest.MonkeyPatch) -> None:
    """So that whoever loads the run accepts them once more."""
    rule = tasks.change_tasks

    def change_tasks(state: State, run_key: int, put: Any, dropped: Any, cancelled: Any) -> None:
        rule(state, run_key, put, (), cancelled)

    patch.setattr(tasks, "change_tasks", change_tasks)


def messages_are_consumed_by_a_high_water_mark(patch: pytest.MonkeyPatch) -> None:
    """A sender has its number before its commit, as from a sequence, and the reader goes on from the last one that it
    has consumed: a message whose commit took longer is passed over."""
    numbers: dict[tuple[int, str], int] = {}
    submit, send, consume = SimulatedStore.commit, store._RULES[Send], mailbox.consume

    def commit(self: SimulatedStore, batch: Sequence[Operation]) -> Any:
        for each in batch:
            if isinstance(each, Send):
                numbers.setdefault((each.run_key, each.message_id), next(self.state.keys))
        return submit(self, batch)

    def numbered(state: State, operation: Send) -> Answer:
        keys = state.keys
        state.keys = itertools.chain([numbers.pop((operation.run_key, operation.message_id), next(keys))], keys)
        try:
            return send(state, operation)
        finally:
            state.keys = keys

    def by_mark(state: State, chain_key: int, consumed: Sequence[tuple[int, int]]) -> None:
        consume(state, chain_key, consumed)
        mark = max((message_key for message_key, _ in consumed), default=0)
        inbox = state.inboxes[chain_key]
        for message in state.waiting(chain_key):
            if message.message_key < mark:
                inbox[message.message_key] = replace(message, verdict="delivered", body=b"")

    patch.setattr(SimulatedStore, "commit", commit)
    patch.setitem(store._RULES, Send, numbered)
    patch.setattr(mailbox, "consume", by_mark)


def the_inbox_is_deleted_unread(patch: pytest.MonkeyPatch) -> None:
    """With what was consumed goes what came meanwhile."""
    rule = mailbox.consume

    def consume(state: State, chain_key: int, consumed: Sequence[tuple[int, int]]) -> None:
        inbox = state.inboxes[chain_key]
        rule(state, chain_key, [each for each in consumed if each[0] in inbox])
        for message in state.waiting(chain_key) if consumed else ():
            del inbox[message.message_key]

    patch.setattr(mailbox, "consume", consume)


async def send_two_of_my_own(caller: Caller) -> None:
    for _ in range(2):
        await caller.signal(Collector.take, "text", message_id=f"own-{caller.dice.random()}")


#: Two programs that send to one run at once.
MANY_SENDERS = several("collector", 6, args=(2,), times=2, then=send_two_of_my_own)
MESSAGES_LOST = ("nothing acknowledged is lost", "everything finishes")
TAKEN_TWICE = ("one outcome per position", "late outcomes", "attempts are counted")

REVERTS = [
    Revert(no_fence, ("no write with an old fence", "one writer per run"), STANDSTILLS, ("sleeper",) * 6),
    Revert(no_compare_and_set, ("compare-and-set", "facts are immutable"), ANSWERS_LOST),
    Revert(terminated_whatever_it_is, ("compare-and-set", "terminal states absorb"), ANSWERS_LOST, ("terminated",) * 6),
    Revert(messages_are_not_known_again, ("messages are delivered once",), Faults(duplicate_message=0.5)),
    Revert(no_look_at_the_mail_when_letting_go, ("every open run has a waker",), DEATHS),
    Revert(retries_overwrite_what_is_there, ("attempts are counted",), RETRIES_LOST),
    Revert(claims_know_no_namespace, ("namespaces and queues are apart",)),
    Revert(task_claims_know_no_namespace, ("namespaces and queues are apart",)),
    Revert(tasks_are_claimed_without_a_lock, ("attempts are counted", "one outcome per position")),
    Revert(runs_are_claimed_without_a_lock, ("one writer per run", "compare-and-set", "attempts are counted")),
    Revert(results_are_taken_whoever_brings_them, (*TAKEN_TWICE, "across-"), STANDSTILLS),
    Revert(results_stay_in_their_rows, ("one outcome per position",), DEATHS),
    Revert(messages_are_consumed_by_a_high_water_mark, MESSAGES_LOST, Faults(slow_store=0.3), MANY_SENDERS),
    Revert(the_inbox_is_deleted_unread, MESSAGES_LOST, Faults(slow_store=0.3), MANY_SENDERS),
]
