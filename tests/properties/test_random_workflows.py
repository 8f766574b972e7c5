"""Any program gives what it must: live, with workers that die under it, and replayed; and so does every part of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from pledger.client import History
from pledger.history import payloads, transition
from pledger.history.events import CancelRequested, RunTerminated
from pledger.history.state import fold
from pledger.history.transition import Transition
from pledger.machine.definitions import WorkflowDefinition
from pledger.machine.identity import RunIdentity
from pledger.machine.machine import Machine
from pledger.testing import Faults, Simulation, replay
from pledger.testing.journal import Then
from tests.properties.programs import (
    ACTIVITIES,
    ENDS,
    PROGRAMS,
    Interpreter,
    Program,
    RefusedError,
    call,
    call_and_end,
    expected,
)

#: Workers die and stand still, and answers are lost: more often than in any life.
TROUBLE = Faults(
    kill=0.2, kill_at_commit=0.05, restart=0.05, pause=0.1, reply_lost=0.05, duplicate_message=0.3, effect_refused=0.2
)
SEEDS = st.integers(0, 2**32)
#: A simulation takes its time: half as many examples as elsewhere.
FEWER = settings(max_examples=settings().max_examples // 2)


def run(program: Program, seed: int, faults: Faults, then: Then = call) -> Simulation:
    """Run it in a simulation, which replays its history too, and holds it against every promise."""
    sim = Simulation(
        seed,
        workflows=[Interpreter],
        activities=ACTIVITIES,
        faults=faults,
        workers=2,
        settle=timedelta(hours=1),
    )
    sim.start(Interpreter, program, id="program", then=then)
    sim.run_until_idle()
    sim.check()
    for streams in sim.state.streams.values():
        said = [payloads.decode(value.body) for _, value in streams["said"].values]
        assert said == list(range(1, len(said) + 1)), "each once, in order"
    return sim


def result(sim: Simulation) -> Any:
    outcomes = {(outcome.status, repr(outcome.value)) for outcome in sim.programs[0].journal.outcomes}
    assert len(outcomes) == 1, outcomes
    return sim.programs[0].journal.outcomes[0].value


def right_result(program: Program) -> Any:
    try:
        return expected(program)
    except RefusedError:
        return "refused"


def history(sim: Simulation) -> History:
    (run_key,) = sim.state.runs
    row = sim.state.runs[run_key]
    identity = RunIdentity(
        namespace=row.namespace,
        workflow_id=row.workflow_id,
        run_id=row.run_id,
        workflow_type=row.workflow_type,
        task_queue=row.task_queue,
    )
    return History(identity, tuple(transition.decode(each.body) for each in sim.state.histories[run_key]))


@given(program=PROGRAMS, seed=SEEDS)
@FEWER
@example(["race", ["flaky", 1], ["shielded", ["signals", 3]], ["expiring", ["gather", ["act", 1], ["draw"]], 10]], 1)
def test_a_program_gives_what_it_must(program: Program, seed: int) -> None:
    assert result(run(program, seed, Faults())) == right_result(program)


@given(program=PROGRAMS, seed=SEEDS)
@FEWER
@example(["finally", ["group", ["fail", 1], ["flaky", 2], ["sleep", 3000]], ["lock", ["plain", 1], ["act", 2]]], 2)
@example(["gather", ["sequence", ["say", 1], ["act", 1], ["say", 2], ["flaky", 2], ["say", 3]], ["say", 4]], 5)
def test_a_program_gives_the_same_while_its_workers_die(program: Program, seed: int) -> None:
    assert result(run(program, seed, TROUBLE)) == right_result(program)


@given(program=PROGRAMS, seed=SEEDS, end=ENDS)
@settings(max_examples=settings().max_examples // 3)
@example(["finally", ["group", ["sleep", 3000], ["signals", 3]], ["fail", 1]], 3, ("cancel", 0.2))
@example(["gather", ["flaky", 1], ["shielded", ["plain", 2]], ["expiring", ["queue", 3], 500]], 4, ("terminate", 0.02))
def test_a_program_that_a_client_ends_is_at_its_end(program: Program, seed: int, end: tuple[str, float]) -> None:
    """Cancelled code cleans up, and may give anything then; code that was not told gives what it must."""
    sim = run(program, seed, TROUBLE, call_and_end(*end))
    value = result(sim)
    [row] = sim.state.runs.values()
    assert row.status in {"completed", "cancelled" if end[0] == "cancel" else "terminated"}
    told = [each for transition in history(sim).transitions for each in transition.inputs]
    was_told = any(isinstance(each, CancelRequested | RunTerminated) for each in told)
    assert was_told or value == right_result(program)
    # Each message that it was sent has its verdict; nothing of it is left to do.
    assert not sim.state.tasks.get(row.run_key)
    assert not [each for each in sim.state.inboxes[row.chain_key].values() if each.verdict is None]


@given(program=PROGRAMS, seed=SEEDS, data=st.data())
@FEWER
def test_any_part_of_a_history_replays_and_folds(program: Program, seed: int, data: st.DataObject) -> None:
    whole = history(run(program, seed, Faults()))
    at = data.draw(st.integers(1, len(whole.transitions)), label="transitions")
    part, rest = whole.transitions[:at], whole.transitions[at:]
    assert replay(History(whole.identity, part), Interpreter) == sum(len(each.events()) for each in part)
    # In one go and in two the state is the same.
    assert fold(rest, fold(part)) == fold(whole.transitions)
    state = fold(part)
    waits_for, due_ms = _waits_for(part, whole.identity)
    assert (waits_for, due_ms) == _waits_for(part, whole.identity)
    if state.status == "running":
        assert waits_for == set(state.activities)
        assert due_ms == min((timer.fire_at_ms for timer in state.timers.values()), default=None)


def _waits_for(transitions: tuple[Transition, ...], identity: RunIdentity) -> tuple[set[int], int | None]:
    """The activities that a machine waits for once it has replayed these, and when it is due next."""
    machine = Machine(WorkflowDefinition.of(Interpreter), identity)
    try:
        machine.replay_all(transitions)
        return set(machine.pending_event_ids()), machine.next_timer_ms()
    finally:
        machine.destroy()
