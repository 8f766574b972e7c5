"""Where payloads stand in what a store is given and gives.

A `Pass` takes the payloads of one record after another, each with its place, through a function: to seal them, to open
them, or to see which there are. A record in whose bytes nothing can be to change is not taken apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from pledger.engine.port.operations import (
    Append,
    Block,
    ExpireTask,
    FinishTask,
    HandOut,
    Heartbeat,
    LogAttempts,
    Operation,
    Publish,
    PutTask,
    Release,
    ResetRun,
    Send,
    StartRun,
)
from pledger.engine.port.posts import NOTICE, Post, StartChild, event_of, notice_id
from pledger.engine.port.records import RESET_NAME, AttemptRecord, Message, Request, TaskRow
from pledger.engine.port.streams import Publication, StreamValue
from pledger.engine.task_rows import decode_command, decode_failure, decode_outcome, encode_record
from pledger.history import memos, sealing, transition
from pledger.history.sealing import Change, Place
from pledger.history.transition import StoredTransition


class Pass:
    """change: what becomes of each payload. may: whether bytes may hold one that it changes."""

    def __init__(self, change: Change, may: Callable[[bytes], bool]) -> None:
        self._change = change
        self._may = may

    # What is read -----------------------------------------------------------------------------------------------------

    def transition(self, stored: StoredTransition, place: Place) -> StoredTransition:
        """With what is kept beside it. One that cannot be decoded is left to whoever verifies it."""
        if not self._may(stored.body):
            return stored
        try:
            found = transition.decode(stored.body)
        except msgspec.MsgspecError:
            return stored
        first, change = stored.first_event_id, self._change
        inputs = sealing.map_events(found.inputs, first, place, change)
        commands = sealing.map_events(found.commands, first + len(inputs), place, change)
        opened = replace(found, inputs=tuple(inputs), commands=tuple(commands))
        return replace(stored, body=transition.encode(opened), kept=stored.body)

    def message(self, message: Message, place: Place) -> Message:
        body = message.body
        if message.kind == "cancel" or not self._may(body):
            return message
        return replace(message, body=self._message_body(message.kind, message.message_id, body, place, message.name))

    def task(self, row: TaskRow) -> TaskRow:
        place, event_id = Place(row.namespace, row.workflow_id, row.run_id, ""), row.event_id
        changed: dict[str, Any] = {}
        if self._may(row.command):
            command = sealing.map_event(decode_command(row.command), event_id, place, self._change)
            changed["command"] = encode_record(command)
        if row.outcome is not None and self._may(row.outcome):
            changed["outcome"] = self._outcome(row.outcome, event_id, place)
        if row.heartbeat is not None and self._may(row.heartbeat):
            changed["heartbeat"] = self._change(row.heartbeat, place.at(f"{event_id}.heartbeat"))
        if row.last_failure is not None and self._may(row.last_failure):
            changed["last_failure"] = self._failure(row.last_failure, place.at(f"{event_id}.last_failure"))
        return replace(row, **changed) if changed else row

    def attempt(self, record: AttemptRecord, place: Place) -> AttemptRecord:
        if record.failure is None or not self._may(record.failure):
            return record
        at = place.at(f"{record.event_id}.attempt {record.attempt}")
        return replace(record, failure=self._failure(record.failure, at))

    def request(self, request: Request, place: Place) -> Request:
        at, changed = request_place(request, place), dict[str, Any]()
        if self._may(request.body):
            changed["body"] = self._change(request.body, at)
        if request.answer is not None and self._may(request.answer):
            changed["answer"] = self.answer(request.answer, at)
        if request.failure is not None and self._may(request.failure):
            changed["failure"] = self.failed_answer(request.failure, at)
        return replace(request, **changed) if changed else request

    def answer(self, answer: bytes, at: Place) -> bytes:
        """To a question. at: its place."""
        return self._change(answer, at.at(f"{at.position} answer"))

    def failed_answer(self, failure: bytes, at: Place) -> bytes:
        return self._failure(failure, at.at(f"{at.position} failure"))

    def stream_value(self, value: StreamValue, place: Place, topic: str) -> StreamValue:
        """place: of any run of the chain."""
        if not self._may(value.body):
            return value
        return replace(value, body=self._change(value.body, _in_stream(place, topic)))

    # What is written --------------------------------------------------------------------------------------------------

    def operation(self, op: Operation, place: Place) -> Operation:
        """A copy, where anything in it is changed: it may be written again. place: of its run; none for a start."""
        changed = dict(self._payloads(op, place))
        if isinstance(op, Append | PutTask | FinishTask | ExpireTask | LogAttempts) and op.attempts:
            changed["attempts"] = [self.attempt(record, place) for record in op.attempts]
        return replace(op, **changed) if changed else op

    def for_others(self, op: Operation, place: Place) -> Operation:
        """What it writes for other runs (starts of children, messages, the report to its parent), and for those who
        follow the chain."""
        if isinstance(op, Publish):
            return replace(op, values=self._published(op.values, place))
        if isinstance(op, StartRun):
            return op if op.first is None else replace(op, first=self.for_others(op.first, _place_of(op)))
        if not isinstance(op, Append):
            return op
        changed: dict[str, Any] = {}
        if op.published:
            changed["published"] = self._published(op.published, place)
        if op.posts:
            changed["posts"] = [self._post(each) for each in op.posts]
        if op.report is not None and (parent := op.report_to) is not None:
            at = Place(place.namespace, parent.workflow_id, "", "")
            message_id = notice_id(parent.run_id, parent.started_event_id, "end")
            changed["report"] = self._message_body(NOTICE, message_id, op.report, at)
        return replace(op, **changed) if changed else op

    def memos(self, op: Operation, place: Place) -> Operation:
        """The memos that lists show: what it writes of them, of its run and of children that it starts."""
        changed: dict[str, Any] = {}
        if isinstance(op, StartRun | ResetRun):
            place = Place(op.namespace, op.workflow_id, op.run_id, "")
        if isinstance(op, StartRun | ResetRun | Append) and op.memo is not None and op.memo != memos.EMPTY:
            changed["memo"] = self.memo(op.memo, place)
        if isinstance(op, StartRun) and op.first is not None:
            changed["first"] = self.memos(op.first, place)
        if isinstance(op, Append) and op.posts:
            changed["posts"] = [
                replace(each, start=self.memos(each.start, place)) if isinstance(each, StartChild) else each
                for each in op.posts
            ]
        return replace(op, **changed) if changed else op

    def memo(self, memo: bytes, place: Place) -> bytes:
        """As lists show it: it is handed on from run to run, so it is its chain's."""
        return self._change(memo, place._replace(run_id="", position="memo"))

    def _published(self, values: Sequence[Publication], place: Place) -> list[Publication]:
        return [replace(each, body=self._change(each.body, _in_stream(place, each.topic))) for each in values]

    def _post(self, post: Post | StartChild) -> Post | StartChild:
        if isinstance(post, StartChild):
            return replace(post, start=replace(post.start, **dict(self._first_inputs(post.start))))
        if post.kind == "cancel":
            return post
        place = Place(post.namespace, post.workflow_id, "", "")
        return replace(post, body=self._message_body(post.kind, post.message_id, post.body, place))

    def _payloads(self, op: Operation, place: Place) -> Iterator[tuple[str, Any]]:
        match op:
            case StartRun() | ResetRun():
                yield from self._first_inputs(op)
            case Send() if op.kind != "cancel" and self._may(op.body):
                yield "body", self._message_body(op.kind, op.message_id, op.body, place)
            case Append():
                yield from self._rows(op, "tasks", "unwritten")
                if op.successor is not None and self._may(op.successor.started):
                    started = self._message_body("start", "", op.successor.started, place, op.successor.name)
                    yield "successor", replace(op.successor, started=started)
            case Release() | Block():
                yield from self._rows(op, "tasks")
            case PutTask():
                yield "task", self.task(op.task)
            case FinishTask(requeue=TaskRow() as row):
                yield "requeue", self.task(row)
            case FinishTask(outcome=bytes() as outcome) | ExpireTask(outcome=outcome) if self._may(outcome):
                yield "outcome", self._outcome(outcome, op.event_id, place)
            case Heartbeat(details=bytes() as details) | HandOut(details=bytes() as details) if self._may(details):
                yield "details", self._change(details, place.at(f"{op.event_id}.heartbeat"))
            case _:
                pass

    def _first_inputs(self, op: StartRun | ResetRun) -> Iterator[tuple[str, Any]]:
        at = Place(op.namespace, op.workflow_id, op.run_id, "")
        if isinstance(op, ResetRun):
            if self._may(op.inputs):
                yield "inputs", self._message_body("start", "", op.inputs, at, RESET_NAME)
            yield from self._rows(op, "tasks")
            return
        if op.owner is None and self._may(op.started):
            yield "started", self._message_body("start", "", op.started, at)
        if op.owner is None and op.beside is not None and self._may(op.beside.body):
            body = self._message_body("signal", op.beside.message_id, op.beside.body, at)
            yield "beside", replace(op.beside, body=body)
        if op.first is not None:
            yield "first", self.operation(op.first, at)

    def _rows(self, op: Any, *names: str) -> Iterator[tuple[str, Any]]:
        for name in names:
            rows: Sequence[TaskRow] = getattr(op, name)
            if rows:
                yield name, [self.task(row) for row in rows]

    # Parts ------------------------------------------------------------------------------------------------------------

    def _message_body(self, kind: str, message_id: str, body: bytes, place: Place, name: str = "") -> bytes:
        place = place._replace(run_id="")  # a message is its chain's
        if kind == "start" and name == RESET_NAME:
            inputs = sealing.map_events(transition.decode_inputs(body), 1, place, self._change)
            return transition.encode_inputs(inputs)
        if kind == "start":
            started = sealing.map_event(transition.decode_started(body), 1, place, self._change)
            return transition.encode_event(started)
        if kind == NOTICE:
            closed = transition.decode_closed(body)
            return transition.encode_event(sealing.map_event(closed, event_of(message_id), place, self._change))
        return self._change(body, place.at(f"message {message_id}"))

    def _outcome(self, outcome: bytes, event_id: int, place: Place) -> bytes:
        return encode_record(sealing.map_event(decode_outcome(outcome), event_id, place, self._change))

    def _failure(self, failure: bytes, place: Place) -> bytes:
        return encode_record(sealing.map_failure(decode_failure(failure), place, self._change))


def request_place(request: Request, place: Place) -> Place:
    """place: of its run."""
    return place.at(f"{request.kind} {request.name}")


def _in_stream(place: Place, topic: str) -> Place:
    """A stream is its chain's."""
    return place._replace(run_id="", position=f"stream {topic}")


def _place_of(op: StartRun) -> Place:
    return Place(op.namespace, op.workflow_id, op.run_id, "")
