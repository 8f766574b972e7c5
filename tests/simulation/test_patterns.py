"""`examples/patterns` while processes die, stores fail and messages come twice: what they promise holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from itertools import groupby
from types import ModuleType
from typing import Any

import pytest

from examples.patterns import approval, entity, fan_out, graph, mutex, polling, scatter, sliding_window
from examples.patterns.catalogue.index import PATTERNS, WORKFLOWS
from examples.patterns.catalogue.tasks import ACTIVITIES
from pledger import errors, workflow
from pledger.engine.limits import Limits
from pledger.engine.port.records import OUTSIDE
from pledger.testing import Caller, Faults, Simulation, environment
from pledger.testing.journal import Outcome, Then

HOUR = timedelta(hours=1)

Whatever = Callable[[int, str], None]


def simulate(
    seed: int, store: str, pattern: ModuleType, definition: Any, *args: Any, then: Then | None = None, events: int = 0
) -> Outcome:
    """How its client was told that it ended. events: the bound of its histories, where it is to meet that."""
    sim = Simulation(
        seed,
        workflows=[*pattern.WORKFLOWS, *{definition}.difference(pattern.WORKFLOWS)],
        activities=pattern.ACTIVITIES,
        faults=Faults.swarm(seed, store),
        limits=Limits(history_events_max=events) if events else None,
        store=store,
        settle=2 * HOUR,
    )
    program = sim.start(definition, *args, id="pattern", then=then)
    sim.run_until_idle()
    sim.check()
    return program.journal.outcomes[-1]


def words_are_counted_once(seed: int, store: str) -> None:
    assert simulate(seed, store, fan_out, fan_out.words_of, "Genesis").value == [3, 6, 4, 13]


def the_parcel_is_there_in_the_end(seed: int, store: str) -> None:
    assert simulate(seed, store, polling, polling.follow, "piano", HOUR).value == "piano is delivered"


def all_is_built(seed: int, store: str) -> None:
    assert simulate(seed, store, graph, graph.Build, "shop").value == "shop(web(base), payments(base, crypto(base)))"


def a_cycle_is_named(seed: int, store: str) -> None:
    ended = simulate(seed, store, graph, graph.Build, "hen")
    assert (ended.status, str(ended.error)) == ("failed", "Cycle: egg needs hen needs egg")


def every_supplier_is_accounted_for(seed: int, store: str) -> None:
    """A lost worker costs an attempt, so one that would answer may be missing; and then it says why."""
    asked = ["Ada", "Bob", "Dan", "Eve", "Fay"]
    offers = simulate(seed, store, scatter, scatter.Tender, asked, 0, timedelta(seconds=20)).value
    assert {*offers.prices, *offers.missing} == {*asked}
    assert offers.prices.items() <= scatter.PRICES.items()
    assert offers.missing.keys() >= {"Dan", "Eve", "Fay"}


def the_first_decision_counts(seed: int, store: str) -> None:
    approval.mail.clear()

    async def people(caller: Caller) -> None:
        await asyncio.sleep(caller.dice.random() * 10)
        for person in ("Mia", "Dora"):
            verdict = approval.Verdict(person, approved=True)
            await caller.signal(approval.Purchase.decide, verdict, message_id=f"verdict of {person}")
        while not await sign(caller):  # noqa: ASYNC110 - the notary looks now and then
            await asyncio.sleep(1)

    async def sign(caller: Caller) -> bool:
        """Of the attempts that have handed a token out, one is still of use."""
        try:
            found = await caller.handle.describe()
        except errors.StoreUnavailableError:
            return False
        out = [row.event_id for row in found.pending if row.owner == OUTSIDE]
        tried = [
            await caller.complete(event_id, token, "Nora") for event_id in out for token in approval.mail["notary"]
        ]
        return any(tried) or found.summary.closed is not None

    told = simulate(seed, store, approval, approval.Purchase, "a lamp", {"Mia": HOUR, "Dora": HOUR}, then=people)
    assert told.value == "approved by Mia, signed by Nora"


def no_purchase_is_lost_or_counted_twice(seed: int, store: str) -> None:
    async def buy(caller: Caller) -> None:
        for number in range(40):
            await caller.signal(entity.Customer.buy, 10, message_id=f"purchase-{number}")
            await asyncio.sleep(caller.dice.random() * 0.3)
        await caller.signal(entity.Customer.leave, message_id="leave")

    ended = simulate(seed, store, entity, entity.Customer, entity.Account(), then=buy, events=60)
    assert ended.value == entity.Account(points=0, purchases=40, gifts=4)


@workflow.defn
async def print_shop(lease: timedelta) -> list[str]:
    """The lock and three who print three pages each; and one that is lost, with the lock in its hands, after one."""
    lock = await workflow.start_child_workflow(mutex.Lock, mutex.Queue(), id="lock")
    lost = await workflow.start_child_workflow(mutex.Job, "lock", lease, 3, 1, id="lost")
    jobs = [await workflow.start_child_workflow(mutex.Job, "lock", lease, 3, id=f"job-{n}") for n in range(3)]
    told = [str(await job) for job in jobs]
    lost.cancel()
    await workflow.wait([lost])
    await lock.signal(mutex.Lock.close)
    await lock
    return told


def all_are_printed_one_after_another(seed: int, store: str) -> None:
    """The lease is longer than any fault."""
    mutex.printer.clear()
    told = simulate(seed, store, mutex, print_shop, timedelta(minutes=3)).value
    assert told == [f"job-{n} is printed" for n in range(3)]
    fences = [fence for fence, _ in mutex.printer.pages]
    assert fences == sorted(fences)
    assert sorted(fences.count(fence) for fence in set(fences)) == [1, 3, 3, 3]
    assert prints_are_whole()


def who_has_outlasted_the_lease_is_stopped(seed: int, store: str) -> None:
    """It is shorter than a take-over: whose worker dies does not print among the pages of others."""
    mutex.printer.clear()
    told = simulate(seed, store, mutex, print_shop, timedelta(seconds=1)).value
    fences = [fence for fence, _ in mutex.printer.pages]
    assert fences == sorted(fences)
    assert prints_are_whole()
    assert all(" is printed" in line or " is stopped: Fenced" in line for line in told)


def prints_are_whole() -> bool:
    """Under one fence nobody prints but its holder, and no page twice."""
    of_fence = [[page for _, page in found] for _, found in groupby(mutex.printer.pages, key=lambda each: each[0])]
    holders = [{page.split()[0] for page in pages} for pages in of_fence]
    return all(len(each) == 1 for each in holders) and all(len(set(pages)) == len(pages) for pages in of_fence)


def every_record_is_worked_on(seed: int, store: str) -> None:
    work = sliding_window.Work(20, 3, HOUR)
    ended = simulate(seed, store, sliding_window, sliding_window.Batch, work, events=120).value
    assert (ended.done, ended.lost, [*ended.failed]) == (19, [], [sliding_window.POISON])


PATTERNS_OF_ONE_RUN: list[Whatever] = [
    words_are_counted_once,
    the_parcel_is_there_in_the_end,
    all_is_built,
    a_cycle_is_named,
    every_supplier_is_accounted_for,
    the_first_decision_counts,
]
PATTERNS_OF_MANY: list[Whatever] = [
    no_purchase_is_lost_or_counted_twice,
    all_are_printed_one_after_another,
    who_has_outlasted_the_lease_is_stopped,
    every_record_is_worked_on,
]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("holds", [*PATTERNS_OF_ONE_RUN, *PATTERNS_OF_MANY])
def test_whatever_happens(holds: Whatever, seed: int) -> None:
    holds(seed, "memory")


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
@pytest.mark.parametrize("holds", PATTERNS_OF_MANY)
def test_what_lies_between_runs_on_every_store(holds: Whatever, store: str) -> None:
    holds(4, store)


# The catalogue --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seed", "store", "is_calm"),
    [
        pytest.param(1, "sqlite", True, id="calm-sqlite"),
        pytest.param(2, "postgres", True, id="calm-postgres"),
        *((seed, "memory", False) for seed in range(3, 5)),
    ],
)
def test_control_flow_patterns_whatever_happens(seed: int, store: str, is_calm: bool) -> None:
    """All of them, beside each other. What is a race may then be won by another."""
    faults = Faults() if is_calm else Faults.swarm(seed, store)
    sim = Simulation(seed, workflows=WORKFLOWS, activities=ACTIVITIES, faults=faults, store=store, settle=2 * HOUR)
    programs = [
        sim.start(pattern.workflow, *pattern.args, id=pattern.workflow_id, then=pattern.outside) for pattern in PATTERNS
    ]
    sim.run_until_idle()
    sim.check()
    for pattern, program in zip(PATTERNS, programs, strict=True):
        ended = program.journal.outcomes[-1]
        assert ended.status == ("cancelled" if pattern.name == "Cancel Case" else "completed"), pattern
        if is_calm or not pattern.is_race:
            assert ended.value == pattern.result, pattern


# What no fault brings about -------------------------------------------------------------------------------------------


def test_a_record_whose_child_was_terminated_is_written_off() -> None:
    with environment(workflows=sliding_window.WORKFLOWS) as env:
        env.fake(sliding_window.convert, lasting({3: 300}))
        batch = env.start(sliding_window.Batch, sliding_window.Work(6, 2, HOUR), id="batch")
        env.sleep(timedelta(minutes=1))
        assert batch.query(sliding_window.Batch.so_far).in_flight == [3]
        env.handle("batch.3").terminate("it happens")
        work = batch.result()
        assert (work.done, work.lost, work.in_flight) == (5, [3], [])


def test_a_record_that_was_written_off_and_only_slow_counts() -> None:
    with environment(workflows=sliding_window.WORKFLOWS) as env:
        env.fake(sliding_window.convert, lasting({3: 150, 4: 90}))
        batch = env.start(sliding_window.Batch, sliding_window.Work(5, 1, timedelta(seconds=100)), id="batch")
        env.sleep(timedelta(seconds=120))
        assert batch.query(sliding_window.Batch.so_far).lost == [3]
        work = batch.result()
        assert (work.done, work.lost) == (5, [])


def lasting(seconds: dict[int, float]) -> Callable[[int], Any]:
    async def convert(record: int) -> None:
        await asyncio.sleep(seconds.get(record, 0))

    return convert


def test_who_no_longer_waits_for_the_lock_is_not_served() -> None:
    mutex.printer.clear()
    with environment(workflows=mutex.WORKFLOWS, activities=mutex.ACTIVITIES) as env:
        lock = env.start(mutex.Lock, mutex.Queue(), id="lock")
        first = env.start(mutex.Job, "lock", HOUR, 1, 1, id="first")
        env.sleep(timedelta(seconds=1))
        waits = env.start(mutex.Job, "lock", HOUR, 1, id="waits")
        env.sleep(timedelta(seconds=1))
        assert lock.query(mutex.Lock.waiting) == ["waits"]
        waits.cancel()
        env.sleep(timedelta(seconds=1))
        assert lock.query(mutex.Lock.waiting) == []
        first.signal(mutex.Job.go_on)
        lock.signal(mutex.Lock.close)
        assert lock.result() == 1
        assert mutex.printer.pages == [(1, "first page 1")]
