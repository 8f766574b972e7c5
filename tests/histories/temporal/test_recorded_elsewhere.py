"""Histories that another engine recorded replay here, against the same workflows written for Pledger.

An outside check of our rules: nobody who wrote these histories knew them. `reader.py` says how they are read.

What carries over:

- The commands of each workflow task, and which inputs they answer: all of it. One task is one transition.
- Results, failures, retries, time-outs, patches, termination: all of it.
- Updates: that they were accepted, and what their handlers did. They are read as signals; their answers, and refused
  ones, have no event here.
- The order of coroutines within one task: label by label as their SDK replays a history with *legacy batching*, where
  one message at a time is handed in until all wait (`tracing-legacy`; the result in that file was recorded without).
  With *single batch*, where all messages come before anything goes on: each coroutine's own order, and the commands.
  What runs side by side is promised no other order.

What does not:

- A cancellation that an old SDK swallowed: ours reaches the code, so the recorded command is a mismatch; with the flag
  that the history records it is one there too.
- Continue-as-new, which is not built yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from pledger.client import History
from pledger.errors import NondeterminismError
from pledger.history import events
from pledger.history.events import Command
from pledger.machine.definitions import WorkflowDefinition
from pledger.machine.machine import Machine
from pledger.testing import replay
from tests.histories.temporal import workflows as w
from tests.histories.temporal.reader import FOLDER, DoesNotCarryOverError, read
from tests.histories.test_golden import changed

TRACED = ["sig-before-sync", "sig-before-1", "sig-before-2", "timer-sync", "act-sync", "act-1", "act-2"]
TRACED_LATER = ["sig-1-sync", "sig-1-1", "sig-1-2", "update-1-sync", "update-1-1", "update-1-2", "timer-1", "timer-2"]
IN_ONE_BATCH = [
    *("sig-before-sync", "sig-before-1", "timer-sync", "act-sync", "sig-before-2", "act-1", "act-2"),
    *TRACED_LATER,
]


@dataclass(frozen=True)
class Case:
    """gives: what the run returns. recorded: what it returned there, where that is something else."""

    name: str
    workflow: Callable[..., Any] | type
    gives: Any = None
    recorded: Any = ...


CASES = [
    Case("sequence-two-activities", w.sequence, 3),
    Case("fanout-five-activities", w.fan_out, [0, 1, 2, 3, 4]),
    Case("activity-retry-third-attempt", w.retry, "ok after 3"),
    Case("activity-non-retryable-caught", w.activity_fails, "ApplicationError:Fatal:no retry"),
    Case("activity-start-to-close-timeout", w.activity_times_out, "TimeoutError:START_TO_CLOSE"),
    Case("signals-async-handler", w.Signals, [1, 2, 3]),
    Case("signal-with-start", w.Signals, [42]),
    Case("updates-validator-activity", w.Updates, 6),
    Case("patched-marker", w.patched, "new"),
    Case("say-hello", w.SayHello, "Hello, Temporal!"),
    Case("signals-while-down", w.SignalsWhileDown, ["act-start", "sig-1", "sig-2", "counter-2", "act-done"]),
    Case("update-and-return", w.UpdateAndReturn, "workflow-result"),
    Case("go-activity-start-race", w.StartRace),
    Case("tracing-legacy", w.Tracing, TRACED + TRACED_LATER, IN_ONE_BATCH),
    Case("tracing", w.Tracing, TRACED + TRACED_LATER, IN_ONE_BATCH),
    Case(
        "tracing-two-signals",
        w.Tracing,
        [*TRACED[:3], *TRACED_LATER[:3], *TRACED[3:], *TRACED_LATER[3:]],
        [
            *("sig-before-sync", "sig-before-1", "sig-1-sync", "sig-1-1", "timer-sync", "act-sync"),
            *("sig-before-2", "sig-1-2", "act-1", "act-2"),
            *TRACED_LATER[3:],
        ],
    ),
]
#: These end in another way than by returning.
OTHER = {
    "workflow-fails": w.fails,
    "java-retry-on-error": w.simple,
    "workflow-timeout": w.Signals,
    "terminated-while-waiting": w.Signals,
}
MISMATCHES = {"say-hello-nondeterministic": w.say_hello_and_sleep, "swallowed-cancellation": w.quick_activities}
NOT_CARRIED_OVER = {"continue-as-new-first-run"}

REPLAYED: dict[str, Callable[..., Any] | type] = {case.name: case.workflow for case in CASES} | OTHER
each_name = pytest.mark.parametrize("name", REPLAYED)


def test_every_history_has_its_place() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == {*REPLAYED, *MISMATCHES, *NOT_CARRIED_OVER}


@each_name
def test_it_replays(name: str) -> None:
    history = read(name)
    assert replay(history, REPLAYED[name]) == len(history.events)


@each_name
def test_the_code_asks_for_the_same_when_it_is_live(name: str) -> None:
    """Given the same inputs, and not what came of them."""
    history = read(name)
    assert [sorted(map(asked, commands)) for commands in live(history, REPLAYED[name])] == [
        sorted(map(asked, transition.commands)) for transition in history.transitions
    ]


@each_name
def test_any_other_command_is_found(name: str) -> None:
    """The replays above would not pass whatever is recorded."""
    assert [what for what, history in changed(read(name)) if replays(history, REPLAYED[name])] == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_gives_the_same_result(case: Case) -> None:
    history = read(case.name)
    assert result(history.transitions[-1].commands) == (case.gives if case.recorded is ... else case.recorded)
    given = result(live(history, case.workflow)[-1])
    assert given == case.gives
    if case.recorded is not ...:
        assert by_task(given) == by_task(case.recorded)


def test_failures_keep_their_type_message_and_details() -> None:
    (failed,) = live(read("workflow-fails"), w.fails)[-1]
    (recorded,) = read("workflow-fails").transitions[-1].commands
    assert isinstance(failed, events.FailRun)
    assert msgspec.structs.replace(failed.failure, traceback="") == recorded.failure  # type: ignore[union-attr]


def test_an_exhausted_activity_fails_its_run_with_the_last_failure() -> None:
    (failed,) = live(read("java-retry-on-error"), w.simple)[-1]
    assert isinstance(failed, events.FailRun)
    cause = failed.failure.cause
    assert cause is not None
    assert (cause.type, cause.message) == ("java.lang.IllegalStateException", "activity attempt 5 failed")


@pytest.mark.parametrize(
    ("name", "recorded", "replayed"),
    [
        ("say-hello-nondeterministic", "CompleteRun", "StartTimer of 0.1 s"),
        ("swallowed-cancellation", "ScheduleActivity 'short_activity_async'", "CancelRun with CancelledError"),
    ],
)
def test_what_is_no_replay_there_is_none_here(name: str, recorded: str, replayed: str) -> None:
    with pytest.raises(NondeterminismError) as caught:
        replay(read(name), MISMATCHES[name])
    assert (caught.value.recorded, caught.value.replayed) == (recorded, replayed)


@pytest.mark.parametrize("name", NOT_CARRIED_OVER)
def test_what_has_no_word_here_is_refused(name: str) -> None:
    with pytest.raises(DoesNotCarryOverError):
        read(name)


def replays(history: History, workflow: Callable[..., Any] | type) -> bool:
    try:
        replay(history, workflow)
    except NondeterminismError:
        return False
    return True


def live(history: History, workflow: Callable[..., Any] | type) -> list[list[Command]]:
    """The commands of each transition, by a machine that is told the inputs only."""
    machine = Machine(WorkflowDefinition.of(workflow), history.identity)
    try:
        return [
            machine.activate(each.inputs, time_ms=each.time_ms)[1]
            if not isinstance(each.inputs[0], events.RunTerminated | events.RunTimedOut)
            else []
            for each in history.transitions
        ]
    finally:
        machine.destroy()


def asked(command: Command) -> tuple[str, ...]:
    """What a command asks for, as far as both engines have it."""
    match command:
        case events.ScheduleActivity():
            return ("activity", command.activity_type, command.args.decode())
        case events.StartTimer():
            return ("timer", str(command.delay_ms), str(command.fire_at_ms))
        case events.RecordPatch():
            return ("patch", command.patch_id)
        case _:
            return (type(command).__name__,)


def result(commands: Any) -> Any:
    (closing,) = (each for each in commands if isinstance(each, events.CompleteRun))
    return msgspec.json.decode(closing.result)


def by_task(labels: list[str]) -> dict[str, list[str]]:
    """The labels of each task that ran side by side, in its own order."""
    tasks: dict[str, list[str]] = {}
    for label in labels:
        tasks.setdefault(label.rpartition("-")[0], []).append(label)
    return tasks
