"""What an open run waits for, and why: the answer to "where is order A1?". Pure.

Every open run has something that will wake it, or stands still for a reason. Whatever it is, it is said here with the
time it comes, the failure it comes after, and what a person can do where nothing will happen by itself.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

import msgspec

from pledger.cli import words
from pledger.cli.timeline import not_handled, timeline
from pledger.client import Description, WorkerSummary
from pledger.engine.port.records import OUTSIDE, PlaceRow, TaskRow
from pledger.history import events, failures
from pledger.history.state import PendingActivity, PendingChild
from pledger.history.transition import decode_started

Kind: TypeAlias = Literal[
    "block", "start", "activity", "timer", "child", "message", "update", "inbox", "deadline", "worker", "pause", "phase"
]

#: Characters of a failure's message.
_MESSAGE_CHARS: Final = 200
#: How late a due run or activity may be before that is worth a remark: workers look once a second.
_LATE_MS: Final = 5_000
#: What to do about a block, by its reason, where its message does not say so itself.
_WAYS_OUT: Final = {
    "bug": "Its state is intact. Deploy a fix (or roll back): a worker with other code takes the run and goes on.",
    "forbidden_call": "Its state is intact. A worker with mended code takes the run and goes on.",
    "poison": "Its state is intact. See why its workers ended (memory, a crash in native code), mend it, and a worker "
    "with other code, or another --build-id, takes the run; or end it: pledger terminate",
}


@dataclass(frozen=True, slots=True)
class Wait:
    """text: a clause that continues "the run ...", with further lines where the reason has them.

    until_ms: when it is over by itself, or None. event_id: what asked for it, or None. needs_help: nothing will happen
    before a person does something. deadline_ms: when it is over whatever happens, or None: it may last for ever.
    owner: who must act in it, where the code names somebody.
    """

    kind: Kind
    text: str
    until_ms: int | None = None
    event_id: int | None = None
    needs_help: bool = False
    deadline_ms: int | None = None
    owner: str | None = None


def owner_and_deadline(run: Description) -> tuple[str | None, int | None]:
    """Who answers for the run, and when it times out in ms; None where nothing was said of it. No worker may have taken
    its start yet: then the worker's own code may still have something to say."""
    for message in run.inbox if run.last_event == 0 else ():
        if message.kind == "start":
            with contextlib.suppress(msgspec.MsgspecError):  # whoever takes it will say so
                started = decode_started(message.body)
                return started.owner, started.deadline_ms
    return run.state.owner, run.state.deadline_ms


def waits(run: Description) -> list[Wait]:
    """What the run waits for; [] when it is closed."""
    if run.summary.closed is not None:
        return []
    now_ms = words.milliseconds(run.now)
    _, deadline_ms = owner_and_deadline(run)
    if run.blocked is not None:
        found = [_block(run, now_ms), *_pauses(run, now_ms)]
    else:
        found = [
            *_pauses(run, now_ms),
            *_phases(run, now_ms),
            *_reasons(run, now_ms),
            *_not_handled(run),
            *_deadline(deadline_ms, now_ms),
            *_carriers(run, now_ms),
        ]
    # None outlasts its run.
    return [replace(each, deadline_ms=_first(each.deadline_ms, deadline_ms)) for each in found]


def _first(*times_ms: int | None) -> int | None:
    return min((each for each in times_ms if each is not None), default=None)


def _pauses(run: Description, now_ms: int) -> Iterator[Wait]:
    """What somebody has said that it, or all of its kind, shall wait for."""
    for pause in run.pauses:
        what = "is paused" if pause.kind == "run" else f"waits: {pause.kind} {words.printable(pause.name)} is paused"
        since = words.moment(words.milliseconds(pause.since), now_ms)
        why = words.one_line(pause.reason, _MESSAGE_CHARS) or "no reason was given"
        said = f"{what} by {words.printable(pause.paused_by)} since {since} ({why})"
        if pause.rate is None:
            name = shlex.quote(words.printable(pause.name))
            yield Wait("pause", f"{said}. To go on: pledger resume {pause.kind} {name}", needs_help=True)
        else:
            pace = f"{pause.released:,} of {pause.backlog:,} went on, {pause.rate:g} a second"
            yield Wait("pause", f"{said}, and that is being lifted: {pace}")


def _phases(run: Description, now_ms: int) -> Iterator[Wait]:
    """What its code says of the stage that it is in, and of what it waits for there; one that is overdue needs help."""
    for event_id, phase in run.state.phases.items():
        begun = phase.begun
        what = "waits for" if begun.kind == "wait" else "is in phase"
        since = f"since {words.moment(phase.begun_ms, now_ms)}"
        owner = "" if begun.owner is None else f"; {words.one_line(begun.owner, _MESSAGE_CHARS)} must act"
        due = ""
        if begun.deadline_ms is not None:
            when = words.moment(begun.deadline_ms, now_ms)
            late_ms = now_ms - begun.deadline_ms
            due = f", overdue by {words.duration(late_ms)}" if late_ms >= 0 else f", due by {when}"
        text = f"{what} {words.one_line(begun.name, _MESSAGE_CHARS)} {since}{due}{owner}"
        ends_ms = begun.deadline_ms if begun.raises else None
        is_overdue = phase.is_overdue(now_ms)
        yield Wait("phase", text, None, event_id, needs_help=is_overdue, deadline_ms=ends_ms, owner=begun.owner)


def _reasons(run: Description, now_ms: int) -> Iterator[Wait]:  # noqa: C901 - one after another
    """What comes next by itself or from outside."""
    tasks = {task.event_id: task for task in run.pending}
    places = {place.event_id: place for place in run.places}
    if run.last_event == 0:
        yield Wait("start", f"waits for a worker of task queue {run.summary.task_queue!r} to start it", now_ms)
    for event_id, pending in run.state.activities.items():
        yield _activity(event_id, pending, tasks.get(event_id), places.get(event_id), run, now_ms)
    for event_id, timer in sorted(run.state.timers.items(), key=lambda each: each[1].fire_at_ms):
        when = f"{words.moment(timer.fire_at_ms, now_ms)} ({words.distance(timer.fire_at_ms, now_ms)})"
        verb = "sleeps until" if timer.fire_at_ms > now_ms else "has slept until"
        if timer.is_deadline:
            verb = "is in a block that must end by"
        yield Wait("timer", f"{verb} {when}", timer.fire_at_ms, event_id, deadline_ms=timer.fire_at_ms)
    for event_id, child in run.state.children.items():
        yield _child(event_id, child, now_ms)
    for event_id, message in run.state.messages.items():
        to = words.printable(message.command.workflow_id)
        what = "a signal" if isinstance(message.command, events.SendSignal) else "a request to cancel"
        yield Wait("message", f"waits to hear what became of {what} to workflow {to}", now_ms, event_id)
    for update in run.state.updates.values():
        if update.completed is None:
            name, since = words.printable(update.command.name), words.moment(update.accepted_ms, now_ms)
            yield Wait("update", f"is at the update {name} since {since}", event_id=update.accepted_event_id)
    # The start is a message too, and said above.
    for waiting in (each for each in run.inbox if each.kind != "start"):
        what = _INBOX.get(waiting.kind, f"the {waiting.kind} {words.printable(waiting.name)}")
        yield Wait("inbox", f"has still to take {what}, accepted {words.distance(waiting.sent_ms, now_ms)}", now_ms)
    state = run.state
    is_woken = state.activities or any(not timer.is_deadline for timer in state.timers.values())
    if run.last_event and not (is_woken or state.children or state.messages or run.inbox):
        yield _nothing_pending(run, now_ms)


_INBOX: Final = {"cancel": "the request to cancel", "notice": "what another run has told it"}


def _child(event_id: int, child: PendingChild, now_ms: int) -> Wait:
    command = child.command
    since = f"since {words.moment(child.requested_ms, now_ms)}"
    run = "which has still to start" if child.run_id is None else f"run {child.run_id}"
    asked = "; it was asked to stop" if child.cancel_requested else ""
    who = f"{words.printable(command.workflow_id)} ({words.printable(command.workflow_type)}, {run})"
    deadline_ms = None if command.timeout_ms is None else child.requested_ms + command.timeout_ms
    return Wait("child", f"waits for child workflow {who} {since}{asked}", None, event_id, deadline_ms=deadline_ms)


def _nothing_pending(run: Description, now_ms: int) -> Wait:
    if run.due is not None and words.milliseconds(run.due) <= now_ms:
        return Wait("worker", "is ready to go on", now_ms)
    if run.state.timers:
        return Wait("message", "waits for a message")
    deadline = "" if run.state.deadline_ms is not None else ", and has no deadline"
    return Wait("message", f"waits for a message: nothing else can wake it{deadline}")


def _not_handled(run: Description) -> Iterator[Wait]:
    """A sender believes that the run was told, and the run goes on without it."""
    found = not_handled(timeline(run.history.transitions, run.attempts))
    if found:
        last = found[-1]
        assert last.failure is not None
        before = f" ({words.count(len(found) - 1, 'signal')} before it neither)" if len(found) > 1 else ""
        name, why = words.one_line(last.name, _MESSAGE_CHARS), words.one_line(last.failure.message, _MESSAGE_CHARS)
        text = f"did not handle the signal {name} (event {last.event_id}){before}: {why}"
        yield Wait("message", text, event_id=last.event_id, needs_help=True)


def _activity(
    event_id: int,
    pending: PendingActivity,
    task: TaskRow | None,
    place: PlaceRow | None,
    run: Description,
    now_ms: int,
) -> Wait:
    queue = pending.command.task_queue or run.summary.task_queue
    until_ms = None if task is None or task.state == "started" else max(task.due_ms, now_ms)
    needs_help = False
    if task is None:
        # A first attempt has no row of its own while the worker that owns the run makes it.
        detail = _started(1, pending.scheduled_ms, run.owner, run.workers, now_ms)
    elif task.state == "queued":
        detail = _queued(task, now_ms)
        # Of the run's own queue, `_carriers` says it once for all.
        needs_help = queue != run.summary.task_queue and not _live(run.workers, queue)
        if needs_help:
            detail += f"; no live worker serves task queue {queue!r}"
        elif place is not None and task.due_ms <= now_ms:
            detail += f"; {_in_line(place)}"
            why, is_paused = _held_up(place, run, now_ms)
            detail, needs_help = detail + why, is_paused
        elif _live(run.workers, queue) and task.due_ms + _LATE_MS < now_ms:
            detail += f"; no worker takes it: does any live worker of task queue {queue!r} know it?"
    elif task.state == "started":
        detail = _under_way(task, run.workers, now_ms)
    else:
        detail = f"attempt {task.attempt} has ended; the run has still to take its outcome"
    if task is not None and task.last_failure is not None:
        detail += f", after {words.failure_line(failures.decode(task.last_failure), _MESSAGE_CHARS)}"
    if task is not None and task.heartbeat is not None:
        detail += f"; its last heartbeat said {words.preview(task.heartbeat, _MESSAGE_CHARS)}"
    if pending.cancel_requested:
        detail += "; it was asked to stop"
    text = f"waits for activity {words.printable(pending.command.activity_type)} ({detail})"
    whole_ms = pending.command.options.schedule_to_close_ms
    deadline_ms = None if whole_ms is None else pending.scheduled_ms + whole_ms
    return Wait("activity", text, until_ms, event_id, needs_help=needs_help, deadline_ms=deadline_ms)


def _queued(task: TaskRow, now_ms: int) -> str:
    when = words.moment(task.due_ms, now_ms)
    if task.due_ms <= now_ms:
        return f"attempt {task.attempt} due since {when}"
    return f"attempt {task.attempt} at {when}, {words.distance(task.due_ms, now_ms)}"


def _in_line(place: PlaceRow) -> str:
    """Like `number 7 in its line, within limit customer of ada (3 in use)`."""
    limits = [
        f"limit {words.printable(name)}{f' of {words.printable(key)}' if key else ''} ({used:,} in use)"
        for name, key, used in place.limits
    ]
    return f"number {place.position:,} in its line{', within ' + ' and '.join(limits) if limits else ''}"


def _held_up(place: PlaceRow, run: Description, now_ms: int) -> tuple[str, bool]:
    """What its dependency has to say to that, if it was set aside for one; and whether it takes an operator."""
    found = None if place.dependency is None else run.dependencies.get(place.dependency)
    if found is None:
        return "", False
    name, since = words.printable(found.name), words.moment(words.milliseconds(found.since), now_ms)
    why = words.one_line(found.reason, _MESSAGE_CHARS)
    match found.phase:
        case "paused":
            said = f"dependency {name} is paused by {words.printable(found.by or '')} since {since}"
            resume = f"pledger dependency resume {shlex.quote(name)}"
            return f"; {said} ({why or 'no reason was given'}). To go on: {resume}", True
        case "open":
            assert found.until is not None
            tries = words.moment(words.milliseconds(found.until), now_ms)
            return f"; the circuit of dependency {name} is open since {since} ({why}); one tries at {tries}", False
        case "half_open":
            return f"; dependency {name} is tried with {found.limit:,} at a time since {since}", False
        case "closed" if place.is_retry:
            return f"; it waits for the retry budget of dependency {name}", False
        case _:
            return "", False


def _started(attempt: int, since_ms: int, worker: str | None, workers: Sequence[WorkerSummary], now_ms: int) -> str:
    """An attempt under way, as far as anybody knows. worker: who makes it, None when that one has been given up."""
    since = f"attempt {attempt} since {words.moment(since_ms, now_ms)}"
    if any(each.identity == worker and each.live for each in workers):
        return f"{since} on worker {worker}"
    return f"{since} on worker {worker or 'unknown'}, which is gone; another one takes over"


def _under_way(task: TaskRow, workers: Sequence[WorkerSummary], now_ms: int) -> str:
    """Who makes it. Who has the token of one that was handed out is known to the code that gave it away, not here."""
    if task.owner != OUTSIDE:
        identity = next((each.identity for each in workers if each.session_key == task.owner), None)
        return _started(task.attempt, task.started_ms or task.scheduled_ms, identity, workers, now_ms)
    since = f"attempt {task.attempt} since {words.moment(task.started_ms or task.scheduled_ms, now_ms)}"
    until = "" if task.expires_ms is None else f", until {words.moment(task.expires_ms, now_ms)} at most"
    return f"{since}, handed out: whoever has its token completes it{until}"


def _deadline(deadline_ms: int | None, now_ms: int) -> Iterator[Wait]:
    if deadline_ms is not None:
        when = f"{words.moment(deadline_ms, now_ms)} ({words.distance(deadline_ms, now_ms)})"
        yield Wait("deadline", f"times out at {when} if it is still open then", deadline_ms)


def _carriers(run: Description, now_ms: int) -> Iterator[Wait]:
    """Whether anybody is there to carry it on."""
    queue = run.summary.task_queue
    live = _live(run.workers, queue)
    if not live:
        yield Wait(
            "worker",
            f"goes on only once there is a worker: no live worker serves task queue {queue!r}. "
            f"Start one: {words.worker_command(queue, run.history.identity.namespace)}",
            needs_help=True,
        )
    elif run.owner is None and not run.pauses and _is_overdue(run, now_ms):
        names = ", ".join(each.identity for each in live)
        yield Wait(
            "worker",
            f"is due, and no worker takes it: does any live worker of task queue {queue!r} ({names}) know workflow "
            f"{run.summary.workflow_type!r}?",
            needs_help=True,
        )


def _is_overdue(run: Description, now_ms: int) -> bool:
    if run.due is None:
        return False
    ready_ms = max(words.milliseconds(run.due), words.milliseconds(run.summary.started), run.state.last_ms)
    return ready_ms + _LATE_MS < now_ms


def _live(workers: Sequence[WorkerSummary], queue: str) -> list[WorkerSummary]:
    return [each for each in workers if each.live and each.task_queue == queue]


def _block(run: Description, now_ms: int) -> Wait:
    """Why it stands still: the message of the block says where, the traceback of a bug says it best."""
    assert run.blocked is not None
    block = run.blocked
    lines = [f"is blocked by {block['type']} since {words.moment(block['at_ms'], now_ms)}: {block['message']}"]
    if block["reason"] == "bug" and block["traceback"]:
        lines.append(block["traceback"].rstrip())
    if block["reason"] in _WAYS_OUT:
        lines.append(_WAYS_OUT[block["reason"]])
    return Wait("block", "\n".join(lines), event_id=block["event_id"], needs_help=True)
