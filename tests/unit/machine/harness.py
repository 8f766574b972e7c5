"""One run of a workflow without an engine: the test hands in the inputs, the machine gives the commands.

Every run that a test drives is replayed when the test ends (see `conftest.py`): what holds live must hold on replay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pledger.history import events, failures, payloads
from pledger.history.events import Command, Event, Input
from pledger.history.transition import FORMAT, Transition
from pledger.machine.definitions import WorkflowDefinition
from pledger.machine.identity import RunIdentity
from pledger.machine.machine import Machine

E = TypeVar("E", bound=Event)

SEED = bytes(range(16))
#: 2026-11-29 18:00 UTC.
START_MS = 1_795_975_200_000


class DrivenRun:
    """A live machine, its inputs handed in by the test. `transitions` is the history that an engine would have kept.

    now_ms: the time of the next transition. payload_bytes_max: see `Machine`.
    """

    def __init__(
        self,
        workflow: Callable[..., Any] | type,
        *args: Any,
        seed: bytes = SEED,
        now_ms: int = START_MS,
        payload_bytes_max: int = payloads.PAYLOAD_BYTES_MAX,
        commands_max: int | None = None,
    ) -> None:
        self.definition = WorkflowDefinition.of(workflow)
        self.identity = RunIdentity(
            namespace="default",
            workflow_id="order-7421",
            run_id="01J9X",
            workflow_type=self.definition.name,
            task_queue="default",
        )
        self.machine = Machine(
            self.definition, self.identity, payload_bytes_max=payload_bytes_max, commands_max=commands_max
        )
        self.now_ms = now_ms
        self.transitions: list[Transition] = []
        self.replay_at_end = True
        self._started = events.RunStarted(
            self.definition.name, self.definition.signature.encode_args(args, {}), seed, "default"
        )

    # Inputs -----------------------------------------------------------------------------------------------------------

    def start(self, *more: Input) -> list[Command]:
        """The first transition: the start, and what arrived together with it."""
        return self.feed(self._started, *more)

    def feed(self, *inputs: Input) -> list[Command]:
        """One activation with these inputs, in as many transitions as it takes; its commands."""
        consumed, commands = self.machine.activate(inputs, time_ms=self.now_ms)
        self._record(inputs[:consumed], commands)
        return commands + self.record_rest()

    def record_rest(self) -> list[Command]:
        """The transitions of what one was not enough for."""
        commands: list[Command] = []
        while self.machine.unrecorded:
            more = self.machine.record_more()
            self._record((), more)
            commands += more
        return commands

    def _record(self, inputs: tuple[Input, ...], commands: list[Command]) -> None:
        continues = bool(self.machine.unrecorded)
        self.transitions.append(Transition(FORMAT, self.now_ms, None, inputs, tuple(commands), continues))

    def complete(self, event_id: int, result: Any = None) -> list[Command]:
        return self.feed(completed(event_id, result))

    def fail(self, event_id: int, error: BaseException, retry_state: str = "maximum_attempts") -> list[Command]:
        return self.feed(failed(event_id, error, retry_state))

    def signal(self, name: str, *args: Any) -> list[Command]:
        return self.feed(signal(name, *args))

    def cancel(self, reason: str = "") -> list[Command]:
        return self.feed(events.CancelRequested(reason, "cancel-1"))

    def fire(self, after_ms: int) -> list[Command]:
        """Let so much time pass; the timers that are due by then fire in one transition ([] when there is none)."""
        self.now_ms += after_ms
        fired = self.machine.due_timers(self.now_ms)
        return self.feed(*fired) if fired else []

    # What is there ----------------------------------------------------------------------------------------------------

    @property
    def events(self) -> list[Event]:
        """The whole history; event n is at n - 1."""
        return [event for transition in self.transitions for event in transition.events()]

    def event_id_of(self, activity_type: str) -> int:
        """Where the newest activity of this type was scheduled."""
        found = [n for n, event in enumerate(self.events, 1) if scheduled_type(event) == activity_type]
        return found[-1]

    @property
    def result(self) -> Any:
        """What the run returned."""
        closing = self.events[-1]
        assert isinstance(closing, events.CompleteRun), f"the run ended with {closing}"
        return self.definition.signature.decode_result(closing.result)

    @property
    def failure(self) -> failures.Failure:
        """What the run failed or was cancelled with."""
        closing = self.events[-1]
        assert isinstance(closing, events.FailRun | events.CancelRun), f"the run ended with {closing}"
        return closing.failure

    # Again ------------------------------------------------------------------------------------------------------------

    def replay(
        self,
        workflow: Callable[..., Any] | type | None = None,
        transitions: Sequence[Transition] | None = None,
        *,
        own_code: str | None = None,
    ) -> Machine:
        """Re-enact the history (or another one) in a machine of its own, against this code or other; the caller
        destroys it."""
        definition = self.definition if workflow is None else WorkflowDefinition.of(workflow)
        machine = Machine(
            definition,
            self.identity,
            payload_bytes_max=self.machine.payload_bytes_max,
            commands_max=self.machine.commands_max,
        )
        machine.own_code = own_code
        try:
            machine.replay_all(self.transitions if transitions is None else transitions)
        except BaseException:
            machine.destroy()
            raise
        return machine

    def reload(self) -> None:
        """Go on in a fresh machine, as after an eviction: the old one is destroyed, the history replayed."""
        self.machine.destroy()
        self.machine = self.replay()


# Inputs and commands, said shortly ------------------------------------------------------------------------------------


def completed(event_id: int, result: Any = None) -> events.ActivityCompleted:
    return events.ActivityCompleted(event_id, payloads.encode(result))


def failed(event_id: int, error: BaseException, retry_state: str = "maximum_attempts") -> events.ActivityFailed:
    return events.ActivityFailed(event_id, failures.from_exception(error), retry_state)


def signal(name: str, *args: Any) -> events.SignalReceived:
    return events.SignalReceived(name, payloads.encode_args_untyped(args), f"message-{name}")


def scheduled_type(event: Event) -> str | None:
    return event.activity_type if isinstance(event, events.ScheduleActivity) else None


def scheduled(commands: Sequence[Event]) -> list[tuple[str, Any]]:
    """The scheduled activities among the commands: type and arguments, one argument as it is."""
    found = []
    for command in commands:
        if isinstance(command, events.ScheduleActivity):
            args = payloads.decode(command.args)
            found.append((command.activity_type, args[0] if len(args) == 1 else args))
    return found


def timers(commands: Sequence[Event]) -> list[int]:
    """Delays (ms) of the started timers among the commands."""
    return [command.delay_ms for command in commands if isinstance(command, events.StartTimer)]


def kinds(commands: Sequence[Event]) -> list[str]:
    return [type(command).__name__ for command in commands]
