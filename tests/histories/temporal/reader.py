"""Turns a recorded Temporal history into one of ours, as far as the meaning carries over.

What one *workflow task* was given and answered becomes one transition. Its inputs are the events since the task before,
and the updates that it accepted; its commands are the events that name its completion.

- The task's start is the transition's time; the ids of the run's events are counted anew.
- A patch marker is a `RecordPatch`; the search attribute that goes with it is dropped.
- An update is a message of its name: that it was accepted, and what its handler did, carries over. Its answer does not,
  nor a rejected one, which leaves no event. An update that was delivered with a task is told after that task's
  completion; it is put back among the inputs.
- A task without inputs and commands (it only carried a rejected update, or an answer) is no transition.
- Time-outs and retries of workflow tasks, started events and sticky queues have no counterpart.
- Continue-as-new does not carry over yet: DoesNotCarryOverError.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from pledger.client import History
from pledger.history import events
from pledger.history.failures import Failure
from pledger.history.transition import FORMAT, Transition
from pledger.machine.identity import RunIdentity

FOLDER: Final = Path(__file__).parent / "data"


class DoesNotCarryOverError(Exception):
    """The history holds what Pledger has no word for."""


@dataclass
class _Task:
    """One workflow task on its way to a transition: (Temporal's event id, the event once ids are known)."""

    time_ms: int = 0
    inputs: list[tuple[int, Callable[[dict[int, int]], events.Input]]] = field(default_factory=list)
    commands: list[tuple[int, Callable[[dict[int, int]], events.Command]]] = field(default_factory=list)


def read(name: str) -> History:
    """The history of that name. Raises DoesNotCarryOverError."""
    recorded = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["events"]
    tasks = _tasks(recorded)
    begun = _attributes(recorded[0])
    identity = RunIdentity(
        namespace="default",
        workflow_id=begun.get("workflowId", name),
        run_id=begun["originalExecutionRunId"],
        workflow_type=begun["workflowType"]["name"],
        task_queue=begun["taskQueue"]["name"],
    )
    ids: dict[int, int] = {}
    for task in tasks:
        for theirs, _ in (*task.inputs, *task.commands):
            ids[theirs] = len(ids) + 1
    return History(identity, tuple(_transition(task, ids) for task in tasks))


def _transition(task: _Task, ids: dict[int, int]) -> Transition:
    inputs = tuple(make(ids) for _, make in task.inputs)
    commands = tuple(make(ids) for _, make in task.commands)
    return Transition(FORMAT, task.time_ms, None, inputs, commands)


def _tasks(recorded: list[dict[str, Any]]) -> list[_Task]:
    tasks: list[_Task] = []
    waiting = _Task()  # what has come since the last task was completed
    started_ms = 0
    attempts = {
        each["eventId"]: _attributes(each).get("attempt", 1)
        for each in recorded
        if _kind(each) == "ActivityTaskStarted"
    }
    for event in recorded:
        kind, event_id, told = _kind(event), int(event["eventId"]), _attributes(event)
        if kind == "WorkflowTaskStarted":
            started_ms = _ms(event["eventTime"])
        elif kind == "WorkflowTaskCompleted":
            waiting.time_ms = started_ms
            tasks.append(waiting)
            waiting = _Task()
        elif kind == "WorkflowExecutionUpdateAccepted":
            tasks[-1].inputs.append((event_id, _message(told["acceptedRequest"]["input"], event_id)))
        elif kind in _INPUTS:
            waiting.inputs.append((event_id, _INPUTS[kind](told, event_id, attempts)))
            if kind in _ENDS:
                waiting.time_ms = _ms(event["eventTime"])
                tasks.append(waiting)
        elif kind in _COMMANDS:
            tasks[-1].commands.append((event_id, _COMMANDS[kind](told, tasks[-1].time_ms)))
        elif kind not in _DROPPED:
            raise DoesNotCarryOverError(f"event {event_id} is {kind}")
    return [task for task in tasks if task.inputs or task.commands]


# Events ---------------------------------------------------------------------------------------------------------------

_DROPPED: Final = frozenset(
    {
        "WorkflowTaskScheduled",
        "ActivityTaskStarted",
        "UpsertWorkflowSearchAttributes",
        "WorkflowExecutionUpdateCompleted",
    }
)
_ENDS: Final = frozenset({"WorkflowExecutionTerminated", "WorkflowExecutionTimedOut"})


def _started(told: dict[str, Any], _: int, __: dict[str, int]) -> Callable[[dict[int, int]], events.Input]:
    seed = told["originalExecutionRunId"].encode()
    started = events.RunStarted(
        told["workflowType"]["name"], _array(told.get("input")), seed, told["taskQueue"]["name"]
    )
    return lambda ids: started


def _message(told: dict[str, Any], event_id: int) -> Callable[[dict[int, int]], events.Input]:
    received = events.SignalReceived(told["name"], _array(told.get("args")), f"event-{event_id}")
    return lambda ids: received


def _signalled(told: dict[str, Any], event_id: int, _: dict[str, int]) -> Callable[[dict[int, int]], events.Input]:
    return _message({"name": told["signalName"], "args": told.get("input")}, event_id)


def _activity_completed(
    told: dict[str, Any], _: int, attempts: dict[str, int]
) -> Callable[[dict[int, int]], events.Input]:
    scheduled, result, attempt = (
        int(told["scheduledEventId"]),
        _value(told.get("result")),
        attempts[told["startedEventId"]],
    )
    return lambda ids: events.ActivityCompleted(ids[scheduled], result, attempt)


def _activity_failed(
    told: dict[str, Any], _: int, attempts: dict[str, int]
) -> Callable[[dict[int, int]], events.Input]:
    scheduled, failure, attempt = (
        int(told["scheduledEventId"]),
        _failure(told["failure"]),
        attempts[told["startedEventId"]],
    )
    state = _RETRY_STATES[_camel(told["retryState"].removeprefix("RETRY_STATE_"))]
    return lambda ids: events.ActivityFailed(ids[scheduled], failure, state, attempt)


def _timer_fired(told: dict[str, Any], _: int, __: dict[str, int]) -> Callable[[dict[int, int]], events.Input]:
    started = int(told["startedEventId"])
    return lambda ids: events.TimerFired(ids[started])


_INPUTS: Final[dict[str, Callable[[dict[str, Any], int, dict[str, int]], Callable[[dict[int, int]], events.Input]]]] = {
    "WorkflowExecutionStarted": _started,
    "WorkflowExecutionSignaled": _signalled,
    "WorkflowExecutionCancelRequested": lambda _, event_id, __: lambda ids: events.CancelRequested("", f"{event_id}"),
    "WorkflowExecutionTerminated": lambda told, _, __: lambda ids: events.RunTerminated(told["reason"]),
    "WorkflowExecutionTimedOut": lambda _, __, ___: lambda ids: events.RunTimedOut(),
    "ActivityTaskCompleted": _activity_completed,
    "ActivityTaskFailed": _activity_failed,
    "ActivityTaskTimedOut": _activity_failed,
    "TimerFired": _timer_fired,
}


def _scheduled(told: dict[str, Any], _: int) -> Callable[[dict[int, int]], events.Command]:
    options = events.ActivityOptions(start_to_close_ms=_duration_ms(told["startToCloseTimeout"]))
    command = events.ScheduleActivity(told["activityType"]["name"], _array(told.get("input")), options)
    return lambda ids: command


def _timer_started(told: dict[str, Any], now_ms: int) -> Callable[[dict[int, int]], events.Command]:
    delay_ms = _duration_ms(told["startToFireTimeout"])
    return lambda ids: events.StartTimer(delay_ms, now_ms + delay_ms)


def _marker(told: dict[str, Any], _: int) -> Callable[[dict[int, int]], events.Command]:
    if told["markerName"] != "core_patch":
        raise DoesNotCarryOverError(f"a marker {told['markerName']!r}")
    patch_id = json.loads(_value(told["details"]["patch-data"]))["id"]
    return lambda ids: events.RecordPatch(patch_id)


_COMMANDS: Final[dict[str, Callable[[dict[str, Any], int], Callable[[dict[int, int]], events.Command]]]] = {
    "ActivityTaskScheduled": _scheduled,
    "TimerStarted": _timer_started,
    "MarkerRecorded": _marker,
    "WorkflowExecutionCompleted": lambda told, _: lambda ids: events.CompleteRun(_value(told.get("result"))),
    "WorkflowExecutionFailed": lambda told, _: lambda ids: events.FailRun(_failure(told["failure"])),
}

# Values ---------------------------------------------------------------------------------------------------------------

_RETRY_STATES: Final = {
    "MaximumAttemptsReached": "maximum_attempts",
    "NonRetryableFailure": "non_retryable",
    "Timeout": "timeout",
}


def _kind(event: dict[str, Any]) -> str:
    """Newer exports say EVENT_TYPE_TIMER_FIRED, older ones TimerFired."""
    return _camel(event["eventType"].removeprefix("EVENT_TYPE_"))


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_")) if name.isupper() else name


def _attributes(event: dict[str, Any]) -> dict[str, Any]:
    return next((value for name, value in event.items() if name.endswith("Attributes")), {})


def _ms(moment: str) -> int:
    seconds, fraction = re.fullmatch(r"(.{19})(\.\d+)?Z", moment).groups("")  # type: ignore[union-attr]
    return round((datetime.fromisoformat(f"{seconds}+00:00").timestamp() + float(fraction or 0)) * 1000)


def _duration_ms(duration: str) -> int:
    return round(float(duration.removesuffix("s")) * 1000)


def _array(payloads: dict[str, Any] | None) -> bytes:
    return b"[" + b",".join(_payload(each) for each in (payloads or {}).get("payloads", ())) + b"]"


def _value(payloads: dict[str, Any] | None) -> bytes:
    found = (payloads or {}).get("payloads", ())
    return _payload(found[0]) if found else b"null"


def _payload(payload: dict[str, Any]) -> bytes:
    encoding = base64.b64decode(payload["metadata"]["encoding"]).decode()
    if encoding == "binary/null":
        return b"null"
    if encoding != "json/plain":
        raise DoesNotCarryOverError(f"a payload in {encoding}")
    if "encodingDecoded" in payload["metadata"]:  # exported for people: the value itself
        return json.dumps(payload["data"]).encode()
    return base64.b64decode(payload["data"])


def _failure(told: dict[str, Any]) -> Failure:
    cause = _failure(told["cause"]) if "cause" in told else None
    message = told.get("message", "")
    if "timeoutFailureInfo" in told:
        kind = told["timeoutFailureInfo"]["timeoutType"].removeprefix("TIMEOUT_TYPE_").lower()
        return Failure("timeout", "TimeoutError", message, cause=cause, attributes={"kind": kind})
    if "activityFailureInfo" in told:
        return Failure("activity", "ActivityError", message, cause=cause)
    info = told.get("applicationFailureInfo", {})
    details = _array(info["details"]) if "details" in info else None
    return Failure(
        "application", info.get("type", ""), message, "", details, info.get("nonRetryable", False), cause=cause
    )
