"""Each invariant finds what it looks for: a finished simulation is tampered with, and the check must say so."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from pledger import activity, workflow
from pledger.history import events, transition
from pledger.history.transition import StoredTransition
from pledger.testing import Caller, Simulation, SimulationFailedError
from pledger.testing.journal import Outcome, Signalled


@activity.defn
async def double(number: int) -> int:
    return 2 * number


@workflow.defn
class Sum:
    def __init__(self) -> None:
        self.numbers: list[int] = []

    @workflow.run
    async def run(self, wanted: int) -> int:
        await workflow.wait_condition(lambda: len(self.numbers) == wanted)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(1)
        return sum([await double(number) for number in self.numbers])

    @workflow.signal
    def add(self, number: int) -> None:
        self.numbers.append(number)


async def send_two(caller: Caller) -> None:
    for number in (1, 2):
        await caller.signal(Sum.add, number, message_id=f"add-{number}")
    await caller.cancel("never mind")


def finished() -> Simulation:
    sim = Simulation(3, workflows=[Sum], activities=[double])
    sim.start(Sum, 2, id="sum", then=send_two)
    sim.run_until_idle()
    return sim


def run_key(sim: Simulation) -> int:
    [key] = sim.state.runs
    return key


def change_run(sim: Simulation, **changes: object) -> None:
    key = run_key(sim)
    sim.state.runs[key] = replace(sim.state.runs[key], **changes)


def forget_the_run(sim: Simulation) -> None:
    del sim.state.runs[run_key(sim)]


def run_it_twice(sim: Simulation) -> None:
    key = run_key(sim)
    sim.state.runs[99] = sim.state.runs[key]
    sim.state.histories[99] = sim.state.histories[key]
    sim.auditor.records.by_run[99] = sim.auditor.records.by_run[key]


def forget_a_message(sim: Simulation) -> None:
    for inbox in sim.state.inboxes.values():
        inbox.clear()


def promise_a_message(sim: Simulation) -> None:
    journal = sim.programs[0].journal
    journal.signals.append(Signalled(journal.run_ids[0], "add", "add-3", 2))


def deliver_out_of_order(sim: Simulation) -> None:
    sim.programs[0].journal.signals.reverse()


def refuse_what_was_delivered(sim: Simulation) -> None:
    sim.programs[0].journal.refused.append("add-1")


def lose_a_verdict(sim: Simulation) -> None:
    for inbox in sim.state.inboxes.values():
        for key, message in inbox.items():
            if message.kind == "cancel":
                inbox[key] = replace(message, verdict="delivered")


def tell_another_end(sim: Simulation) -> None:
    journal = sim.programs[0].journal
    journal.outcomes.append(Outcome(journal.run_ids[0], "failed"))


def tell_another_result(sim: Simulation) -> None:
    journal = sim.programs[0].journal
    journal.outcomes.append(Outcome(journal.run_ids[0], "completed", 7))


def terminate_it_for_the_client_only(sim: Simulation) -> None:
    journal = sim.programs[0].journal
    journal.terminated.append(journal.run_ids[0])


def return_something_else(sim: Simulation) -> None:
    for seen in sim.world.activities.values():
        seen.attempts[0].result = 1_000


def change_a_row(sim: Simulation) -> None:
    history = sim.state.histories[run_key(sim)]
    row = history[0]
    history[0] = StoredTransition(row.first_event_id, row.body.replace(b"Sum", b"Sun"), row.checksum)


def cut_the_end(sim: Simulation) -> None:
    sim.state.histories[run_key(sim)].pop()


def write_another_history(sim: Simulation) -> None:
    """A whole one, with its checksums, and not what the code asks for."""
    key = run_key(sim)
    head, first = transition.CHAIN_START, 1
    history = sim.state.histories[key]
    for at, row in enumerate(history):
        found = transition.decode(row.body)
        commands = tuple(
            events.StartTimer(each.delay_ms, each.fire_at_ms) if isinstance(each, events.StartTimer) else each
            for each in found.commands
            if not isinstance(each, events.ScheduleActivity)
        )
        body = transition.encode(transition.Transition(found.format, found.time_ms, found.code, found.inputs, commands))
        head = transition.checksum(head, first, body)
        history[at] = StoredTransition(first, body, head)
        first += len(found.inputs) + len(commands)
    change_run(sim, head=head, last_event=first - 1)
    record = sim.auditor.records.by_run[key]
    record.head, record.state.last_event = head, first - 1


def leave_a_wake(sim: Simulation) -> None:
    sim.state.wakes.add(run_key(sim))


def count_an_end_twice(sim: Simulation) -> None:
    place = next(iter(sim.auditor.tally.ended))
    sim.auditor.tally.ended[place] += 1


def leave_an_owner(sim: Simulation) -> None:
    change_run(sim, owner=1)


TAMPERINGS: list[tuple[Callable[[Simulation], None], str]] = [
    (forget_the_run, "nothing acknowledged is lost"),
    (run_it_twice, "one start, one run"),
    (forget_a_message, "nothing acknowledged is lost"),
    (promise_a_message, "nothing acknowledged is lost"),
    (deliver_out_of_order, "messages arrive in their sender's order"),
    (refuse_what_was_delivered, "refused is refused"),
    (lose_a_verdict, "every cancel has its verdict"),
    (tell_another_end, "told is true"),
    (tell_another_result, "told is true"),
    (terminate_it_for_the_client_only, "told is true"),
    (return_something_else, "results are true"),
    (change_a_row, "facts are immutable"),
    (cut_the_end, "facts are immutable"),
    (write_another_history, "replay equals the record"),
    (count_an_end_twice, "ends are counted once"),
    (leave_a_wake, "nothing is left"),
    (leave_an_owner, "nothing is left"),
]


def test_an_honest_simulation_passes() -> None:
    finished().check()


@pytest.mark.parametrize(("tamper", "rule"), TAMPERINGS, ids=lambda each: getattr(each, "__name__", ""))
def test_tampering_is_found(tamper: Callable[[Simulation], None], rule: str) -> None:
    sim = finished()
    tamper(sim)
    with pytest.raises(SimulationFailedError) as failed:
        sim.check()
    assert any(violation.startswith(rule) for violation in failed.value.violations), failed.value.violations


def test_a_failure_names_its_seed_and_a_check_of_ones_own_counts() -> None:
    sim = finished()
    with pytest.raises(SimulationFailedError, match=r"seed 3: the answer is odd") as failed:
        sim.check(lambda _: ["the answer is odd"])
    assert (failed.value.seed, failed.value.violations) == (3, ["the answer is odd"])
