"""F19: the workflow's source is changed while a run is open.

Every statement is removed, doubled, renamed, exchanged with its neighbour and turned into one of another type, under a
run that has come so far. What the record has already asked for must be asked for again, or the run blocks with its
state intact; what lies ahead of it may change freely.
"""

from __future__ import annotations

import ast
import asyncio
import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pledger import activity, workflow
from pledger.errors import NondeterminismError, RunBlockedError
from pledger.history import events
from tests.engine.harness import Ledger, until
from tests.unit.machine.harness import DrivenRun

SOURCE = """
@workflow.defn(name="order")
class Order:
    def __init__(self):
        self.told = []
        self.paid = False

    @workflow.run
    async def run(self):
        self.told.append(await reserve("stock"))
        await asyncio.sleep(3600)
        self.told.append(await charge("card"))
        await workflow.wait_condition(lambda: self.paid, timeout=7200)
        self.told.append(await ship("parcel"))
        return self.told

    @workflow.signal
    def pay(self):
        self.paid = True
"""


@activity.defn
async def reserve(what: str) -> str:
    return f"reserved {what}"


@activity.defn
async def charge(what: str) -> str:
    return f"charged {what}"


@activity.defn
async def ship(what: str) -> str:
    return f"shipped {what}"


@activity.defn
async def inspect(what: str) -> str:
    return f"inspected {what}"


STEPS = [reserve, charge, ship, inspect]

# Mutants --------------------------------------------------------------------------------------------------------------


def body_of(tree: ast.Module) -> list[ast.stmt]:
    """The statements of `run`."""
    [cls] = tree.body
    assert isinstance(cls, ast.ClassDef)
    [run] = [each for each in cls.body if isinstance(each, ast.AsyncFunctionDef)]
    return run.body


def statement(source: str) -> ast.stmt:
    [found] = ast.parse(source).body
    return found


def mutants() -> Iterator[tuple[str, str]]:
    """(name, source): one change each. The last statement is the return."""
    original = ast.parse(SOURCE)
    count = len(body_of(original)) - 1

    def changed(change: Callable[[list[ast.stmt]], object]) -> str:
        tree = copy.deepcopy(original)
        change(body_of(tree))
        return ast.unparse(tree)

    for at in range(count):
        yield f"remove {at}", changed(lambda body, at=at: body.pop(at))
        yield f"add a step before {at}", changed(lambda body, at=at: body.insert(at, statement('await inspect("it")')))
        yield f"double {at}", changed(lambda body, at=at: body.insert(at, copy.deepcopy(body[at])))
        step_or_timer = "await asyncio.sleep(60)" if at in {0, 2, 4} else 'await inspect("it")'
        yield (
            f"change the type of {at}",
            changed(lambda body, at=at, new=step_or_timer: body.__setitem__(at, statement(new))),
        )
        if at in {0, 2, 4}:
            renamed = statement('self.told.append(await inspect("it"))')
            yield f"rename {at}", changed(lambda body, at=at, new=renamed: body.__setitem__(at, new))
    for at in range(count - 1):

        def swap(body: list[ast.stmt], at: int = at) -> None:
            body[at], body[at + 1] = body[at + 1], body[at]

        yield f"exchange {at} and {at + 1}", changed(swap)


MUTANTS = dict(mutants())
#: Waiting once more for what is there already asks for nothing.
NO_CHANGE = {"double 3"}


def compiled(source: str) -> Any:
    """The definition."""
    names = {"__name__": "order", "workflow": workflow, "asyncio": asyncio, **{each.name: each for each in STEPS}}
    exec(compile(source, "order.py", "exec"), names)
    return names["Order"]


# Under every prefix ---------------------------------------------------------------------------------------------------


def asked(run: DrivenRun) -> list[str]:
    """What the code asked for, in its order: the sequence that a replay must meet. A signal is met by whoever waits."""
    told = []
    for event in run.events:
        match event:
            case events.ScheduleActivity():
                told.append(event.activity_type)
            case events.StartTimer():
                told.append("timer")
            case events.CancelTimer():
                told.append(f"cancel {event.started_event_id}")
            case events.CompleteRun():
                told.append("the end")
            case _:
                pass
    return told


def forward(run: DrivenRun) -> bool:
    """One input more: whatever the code waits for comes. False at the end."""
    if run.machine.closed is not None:
        return False
    pending = run.machine.pending_activities()
    if pending:
        event_id = min(pending)
        command = run.events[event_id - 1]
        assert isinstance(command, events.ScheduleActivity)
        run.complete(event_id, f"result of {command.activity_type}")
    elif run.machine.next_timer_ms() is not None and not waits_for_payment(run):
        run.fire(10_000_000)
    else:
        run.signal("pay")
    return True


def waits_for_payment(run: DrivenRun) -> bool:
    return bool(run.machine.context.conditions)


def driven(source: str, inputs: int) -> DrivenRun:
    run = DrivenRun(compiled(source))
    run.start()
    for _ in range(inputs):
        assert forward(run)
    return run


def length() -> int:
    """How many inputs the original takes after its start."""
    run = driven(SOURCE, 0)
    count = 0
    while forward(run):
        count += 1
    run.machine.destroy()
    return count


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_change_blocks_where_it_was_asked_for_and_is_free_ahead_of_it(mutant: str) -> None:
    outcomes = []
    for inputs in range(length() + 1):
        run = driven(SOURCE, inputs)
        before = list(run.transitions)
        changed = compiled(MUTANTS[mutant])
        try:
            again = run.replay(changed)
        except NondeterminismError:
            outcomes.append("blocks")
            # Nothing recorded has changed, and the code as it was goes on from there.
            assert run.transitions == before
            run.replay().destroy()
        else:
            outcomes.append("goes on")
            # Only because it asks for the same so far: what it does with the same inputs is what is recorded.
            alone = DrivenRun(changed)
            for each in run.transitions:
                alone.now_ms = each.time_ms
                alone.feed(*each.inputs)
            assert asked(alone) == asked(run)
            alone.machine.destroy()
            again.destroy()
        run.machine.destroy()
    # Free at first, if at all; from the point on where it shows, blocked to the end.
    assert outcomes == sorted(outcomes, reverse=True)
    assert outcomes[-1] == ("goes on" if mutant in NO_CHANGE else "blocks")


def test_every_kind_of_change_is_met_early_and_late() -> None:
    assert len(MUTANTS) == 27
    assert {name.rstrip(" 0123456789and") for name in MUTANTS} >= {"remove", "rename", "double", "change the type of"}


# On an engine ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mutant", ["remove 0", "add a step before 0", "rename 0", "exchange 0 and 1", "change the type of 1"]
)
async def test_a_changed_run_blocks_intact_and_goes_on_once_it_is_rolled_back(ledger: Ledger, mutant: str) -> None:
    ledger.replay_at_end = False
    patient = SOURCE.replace("asyncio.sleep(3600)", "workflow.wait_condition(lambda: self.paid, timeout=3600)")
    changed = MUTANTS[mutant].replace("asyncio.sleep(3600)", "workflow.wait_condition(lambda: self.paid, timeout=3600)")
    async with ledger.connect() as client:
        async with ledger.worker(client, compiled(patient), *STEPS, build_id="v1"):
            handle = await client.start_workflow("order", id="order-1")
            await until(lambda: _done(handle, 1))
        before = (await handle.history()).transitions
        async with ledger.worker(client, compiled(changed), *STEPS, build_id="v2"):
            await handle.signal("pay")
            with pytest.raises(RunBlockedError) as caught:
                await handle.result()
            assert caught.value.failure_type == "NondeterminismError"
            # In flight at its old point, to the last event.
            assert (await handle.history()).transitions == before
        async with ledger.worker(client, compiled(patient), *STEPS, build_id="v3"):
            told = await handle.result(wait_while_blocked=True)
    assert told == ["reserved stock", "charged card", "shipped parcel"]


async def _done(handle: Any, count: int) -> bool:
    return bool((await handle.describe()).state.activities_done == count)
