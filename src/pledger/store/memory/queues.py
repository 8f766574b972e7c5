"""Task queues whose rows stand in lanes, or whose activities are limited."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from msgspec.structs import replace

from pledger.engine.port import choosing, lanes
from pledger.engine.port.lanes import Bounds, Choice, Claim, Head, Served, Situation, Slot, SlotKey
from pledger.engine.port.records import OUTSIDE, LimitRow, PlaceRow, QueueRow, TaskRow
from pledger.history.placement import LimitRule
from pledger.store import queue_rows
from pledger.store.memory import pauses
from pledger.store.memory.state import QueueState, State
from pledger.store.memory.tasks import queued_tasks, start_tasks


def claim_queued(state: State, session_key: int, now_ms: int, served: Served, room: int, bounds: Bounds) -> Claim:
    if session_key not in state.sessions:
        return Claim([])
    namespace, task_queue = served.namespace, served.task_queue
    queues = state.queues.setdefault(namespace, QueueState())
    queues.slots = live_slots(state, queues)
    mine = [task for task in queued_tasks(state, namespace) if task.task_queue == task_queue]
    found = Situation(
        now_ms,
        state.clock(),
        [
            _head(task)
            for task in mine
            if task.activity_type in served.activity_types and not pauses.holds_task(state, task, served.lifted)
        ],
        queues.overrides,
        queues.slots,
        queues.full_ms,
        {share: each for (queue, share), each in queues.passes.items() if queue == task_queue},
        {priority: each for (queue, priority), each in queues.clocks.items() if queue == task_queue},
        state.dependencies.get(namespace, {}),
    )
    choice = choosing.choose(found, bounds, room, served.ahead)
    _note(queues, task_queue, session_key, choice)
    state.dependencies.setdefault(namespace, {}).update(choice.dependencies)
    for head, lane in choice.aside:
        task = state.tasks[head.run_key][head.event_id]
        state.tasks[head.run_key][head.event_id] = replace(task, lane=lane)
    queues.full_ms = {use: full_ms for use, full_ms in queues.full_ms.items() if full_ms > found.store_ms}
    chosen = [state.tasks[grant.head.run_key][grant.head.event_id] for grant in choice.grants]
    return choice.claim(start_tasks(state, session_key, now_ms, chosen))


def claim_lifted_tasks(state: State, session_key: int, now_ms: int, served: Served, room: int, bounds: Bounds) -> Claim:
    lifting = pauses.lifting(state, served.namespace, served.task_queue)
    claims = []
    for part in lifting.of_tasks(served.activity_types, room):
        narrowed = replace(served, activity_types=part.names, lifted=part.lifted)
        claims.append(claim_queued(state, session_key, now_ms, narrowed, part.room, bounds))
        lifting.pay(part, claims[-1].tasks)
    pauses.settle(state, lifting)
    return lanes.claimed(claims)


def _head(task: TaskRow) -> Head:
    lane = task.lane if lanes.is_apart(task) else None
    is_over = task.lost or task.cancel_requested
    place = (task.run_key, task.event_id, task.attempt, task.activity_type, lane)
    return Head(*place, task.due_ms, task.weight, is_over)


def live_slots(state: State, queues: QueueState) -> dict[SlotKey, Slot]:
    """Those whose attempt runs."""

    def is_live(slot: Slot) -> bool:
        task = state.tasks.get(slot.run_key, {}).get(slot.event_id)
        return task is not None and (task.owner, task.attempt) == (slot.session_key, slot.attempt)

    return {key: slot for key, slot in queues.slots.items() if is_live(slot)}


def _note(queues: QueueState, task_queue: str, session_key: int, choice: Choice) -> None:
    for head, taken in choice.grants:
        for key in taken:
            queues.slots[key] = Slot(*key, session_key, head.run_key, head.event_id, head.attempt, live=True)
    queues.full_ms.update(choice.full_ms)
    queues.passes.update(((task_queue, share), each) for share, each in choice.passes.items())
    queues.clocks.update(((task_queue, priority), each) for priority, each in choice.clocks.items())
    for priority, clock in choice.clocks.items():
        _forget_turns(queues, task_queue, priority, clock)


def _forget_turns(queues: QueueState, task_queue: str, priority: int, clock: float) -> None:
    """Of shares that have been away, which re-enter at the clock; and those that are least ahead, beyond so many."""
    own = {key: at for key, at in queues.passes.items() if key[0] == task_queue and key[1][0] == priority}
    ahead = sorted(own.values(), reverse=True)[queue_rows.TURNS_MAX :]
    passed = max([clock, *ahead[:1]])
    for key in [key for key, at in own.items() if at <= passed]:
        del queues.passes[key]


def state_limits(state: State, namespace: str, rules: Mapping[str, LimitRule]) -> None:
    state.news = True
    state.queues.setdefault(namespace, QueueState()).stated.update(rules)


def override_limit(state: State, namespace: str, name: str, override: LimitRule | None) -> None:
    state.news = True
    queues = state.queues.setdefault(namespace, QueueState())
    if override is None:
        queues.overrides.pop(name, None)
    else:
        queues.overrides[name] = override


def read_limits(state: State, namespace: str) -> list[LimitRow]:
    queues = state.queues.get(namespace, QueueState())
    used = Counter((slot.limit, slot.key) for slot in live_slots(state, queues).values())
    lengths = Counter(str(task.lane) for task in queued_tasks(state, namespace) if lanes.is_apart(task))
    return queue_rows.limit_rows(queues.stated, queues.overrides, used, lengths)


def read_queues(state: State, namespace: str, now_ms: int) -> list[QueueRow]:
    rows = [task for tasks in state.tasks.values() for task in tasks.values() if task.namespace == namespace]
    queues: dict[str, list[TaskRow]] = defaultdict(list)
    for task in rows:
        if task.state != "done" and task.owner != OUTSIDE:  # nobody of the queue runs that
            queues[task.task_queue].append(task)
    found = []
    for name, tasks in sorted(queues.items()):
        due = [task.due_ms for task in tasks if task.state == "queued" and task.due_ms <= now_ms]
        later = sum(task.state == "queued" and task.due_ms > now_ms for task in tasks)
        started = sum(task.state == "started" for task in tasks)
        found.append(QueueRow(name, len(due), min(due, default=None), later, started))
    return found


def read_places(state: State, run_key: int) -> list[PlaceRow]:
    found = []
    for _, task in sorted(state.tasks.get(run_key, {}).items()):
        if lanes.is_apart(task):
            queues = state.queues.get(task.namespace, QueueState())
            same = [each for each in queued_tasks(state, task.namespace) if _same_lane(each, task)]
            before = sum(_age(each) < _age(task) for each in same)
            slots = live_slots(state, queues).values()
            found.append(queue_rows.place_row(task.event_id, before, task.lane, slots))
    return found


def _same_lane(one: TaskRow, other: TaskRow) -> bool:
    same = (one.task_queue, one.activity_type, one.lane) == (other.task_queue, other.activity_type, other.lane)
    return same and lanes.is_apart(one)


def _age(task: TaskRow) -> tuple[int, int, int]:
    return task.due_ms, task.run_key, task.event_id
