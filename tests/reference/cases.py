"""How the reference workflows are started, what their clients do meanwhile, and how they may end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from pledger import SearchAttributePair, Secret, TypedSearchAttributes
from pledger.testing import Caller, Simulation
from pledger.testing.journal import Beside, Then
from tests.reference import crowded as c
from tests.reference import depending as d
from tests.reference import families, resetting, scoped
from tests.reference import further as f
from tests.reference import handed_out as h
from tests.reference import publishing as p
from tests.reference import rolling as r
from tests.reference import shop as s
from tests.reference import workflows as w


@dataclass(frozen=True)
class Case:
    """name: also the workflow id's beginning. ends: the terminal states that are right. times: how many programs start
    it, under one id. options: of the start; beside: what is written in its transaction. early: where workers come later
    than clients, `then` comes before them.
    """

    name: str
    workflow: Callable[..., Any] | type
    args: tuple[Any, ...]
    then: Then | None = None
    ends: frozenset[str] = frozenset({"completed"})
    times: int = 1
    options: dict[str, Any] = field(default_factory=dict)
    early: bool = False
    beside: Beside | None = None


async def send_three(caller: Caller) -> None:
    for n in range(3):
        await asyncio.sleep(caller.dice.random() * 3)
        await caller.signal(w.Collector.take, f"text {n}", message_id=f"take-{n}")
        if caller.dice.random() < 0.3:
            await caller.query(w.Collector.count)


async def send_too_many(caller: Caller) -> None:
    """The last ones meet a run that is closing, or closed."""
    for n in range(6):
        if not await caller.signal(w.Collector.take, f"text {n}", message_id=f"take-{n}"):
            return
        await asyncio.sleep(caller.dice.random() * 0.02)


async def decide(caller: Caller) -> None:
    await asyncio.sleep(caller.dice.random() * 8)
    await caller.signal(w.Approval.decide, "yes", message_id="decision")


async def act_twice(caller: Caller) -> None:
    for n in range(2):
        await caller.signal(w.Handlers.act, f"{n}", message_id=f"act-{n}")
        await asyncio.sleep(caller.dice.random() * 2)


async def cancel(caller: Caller) -> None:
    await asyncio.sleep(caller.dice.random() * 6)
    await caller.cancel("changed my mind")


async def terminate(caller: Caller) -> None:
    await asyncio.sleep(caller.dice.random() * 6)
    await caller.terminate("enough")


async def enter_three(caller: Caller) -> None:
    """Where workers come later than clients, all of this is there before the run's first step."""
    for n in range(3):
        await caller.signal(f.Ledgered.enter, f"line {n}", message_id=f"enter-{n}")


async def send_five(caller: Caller) -> None:
    """Some of them meet a run that is about to end, and the next ones its successor."""
    for n in range(5):
        await caller.signal(r.Rolling.take, f"text {n}", message_id=f"take-{n}")
        if n == 3:
            await asyncio.sleep(caller.dice.random() * 2)
            await caller.query(r.Rolling.count)


async def ask_between(caller: Caller) -> None:
    for n in range(2):
        await caller.signal(f.Ledgered.enter, f"line {n}", message_id=f"enter-{n}")
        await caller.query(f.Ledgered.balance)
        await asyncio.sleep(caller.dice.random() * 2)


async def say_two(caller: Caller) -> None:
    """Each over a few pages, and the second begins as the first."""
    for n in range(2):
        content = f"said {n}: " + "and then it went on.\n" * 250 * (n + 1)
        await caller.signal(f.Conversing.say, content, message_id=f"say-{n}")
        await asyncio.sleep(caller.dice.random() * 2)


async def deliver(caller: Caller) -> None:
    """Whoever has the parcels says what became of them: mostly twice, as a system does that got no answer, and some get
    lost. One of two answers that come at the same time is accepted."""
    while (out := await caller.handed_out()) is not None:
        for event_id, token in out:
            if caller.dice.random() < 0.1:
                await caller.fail(token, "lost")
            elif caller.dice.random() < 0.9:
                results = [f"{event_id} by {caller.dice.choice('abc')}" for _ in range(2)]
                await asyncio.gather(*(caller.complete(event_id, token, each) for each in results))
        await asyncio.sleep(caller.dice.random() * 3)


async def note_three(caller: Caller) -> None:
    for n in range(3):
        if not await caller.signal(resetting.Errand.note, f"note {n}", message_id=f"note-{n}"):
            return
        await asyncio.sleep(caller.dice.random() * 2)
    if caller.dice.random() < 0.3:
        await caller.cancel("changed my mind")


async def buy_three(caller: Caller) -> None:
    """At once; who is refused comes again, by another name."""

    async def buy(n: int) -> None:
        name = f"buy-{n}-"
        while True:
            again = sum(each.startswith(name) for each in caller.updates_refused)
            if await caller.update(f.Till.sell, f"thing {n}", id=f"{name}{again}") is not False:
                return
            await asyncio.sleep(caller.dice.random())

    await asyncio.gather(*map(buy, range(3)))


async def follow_all(caller: Caller) -> None:
    """Two read what comes, and break off now and then; a third says something."""

    async def note() -> None:
        for n in range(2):
            await asyncio.sleep(caller.dice.random() * 2)
            await caller.signal(p.Reciting.note, f"note {n}", message_id=f"note-{n}")

    await asyncio.gather(caller.follow("progress"), caller.follow("tokens"), note())


CASES = [
    Case("sequence", w.sequence, (5,)),
    Case("fan-out", w.fan_out, (8,)),
    Case("plain", w.plain_steps, (3,)),
    Case("sleeper", w.sleeper, ([0.5, 3.0, 8.0],)),
    Case("race-lost", w.race, (0.7,)),
    Case("race-won", w.race, (30.0,)),
    Case("collector", w.Collector, (3,), send_three),
    Case("overfull", w.Collector, (3,), send_too_many),
    Case("twins", w.sequence, (3,), times=2),
    Case("across", w.across_queues, (3,)),
    Case("in-vain", w.waiting_in_vain, ("one",)),
    Case("approval", w.Approval, (4.0,), decide),
    Case("handlers", w.Handlers, (2,), act_twice),
    Case("cancellable", w.cancellable, (3.0,), cancel, frozenset({"completed", "cancelled"})),
    Case("tidying", w.tidying, (3.0,)),
    Case("stubborn", w.stubborn, (5.0,), cancel, frozenset({"completed", "cancelled"})),
    Case("retrying", w.retrying, ("one",)),
    Case("at-most-once", w.at_most_once, (4,)),
    Case("hurried", w.hurried, ("one",)),
    Case("beating", w.beating, (10,)),
    Case("grouped", w.grouped, (4,)),
    Case("patched", w.patched, ("one",)),
    Case("drawing", w.drawing, (3,)),
    Case("doomed", w.doomed, ("one",), None, frozenset({"timed_out"})),
    Case("abandoning", w.abandoning, ("one",)),
    Case("giving-up", w.giving_up, (2.0,)),
    Case("compensating", w.compensating, (3,)),
    Case("compensating-cancelled", w.compensating, (3,), cancel, frozenset({"completed", "cancelled"})),
    Case("terminated", w.sequence, (20,), terminate, frozenset({"completed", "terminated"})),
]
#: Of `further.py`. Not among those that a seed draws from: one more there sends every seed another way.
FURTHER = [
    Case("stumbling", f.stumbling, ("one",)),
    Case("timing-out", f.timing_out, ()),
    Case("bulky", f.bulky, (100_000,)),
    Case("conversing", f.Conversing, (2, 3), say_two),
    Case("in-context", f.in_context, (3,)),
    Case("streaming", f.streaming, (3,)),
    Case("workshop", f.workshop, (3,)),
    Case("rationed", f.rationed, (6,)),
    Case("one-by-one", f.one_by_one, (3,)),
    Case(
        "labelled",
        f.labelled,
        (["left", "right"],),
        options={
            "search_attributes": TypedSearchAttributes([SearchAttributePair(f.DONE, 0)]),
            "memo": {"by": "a test"},
        },
    ),
    Case("failing", f.failing, ("one",), None, frozenset({"failed"})),
    Case(
        "outlasted",
        f.endless,
        ("one",),
        None,
        frozenset({"timed_out"}),
        options={"execution_timeout": timedelta(seconds=40)},
    ),
    Case("early-mail", f.Ledgered, (3,), enter_three, early=True),
    Case("asked", f.Ledgered, (2,), ask_between),
    Case("bounded", scoped.bounded, ("one",)),
    Case("family", families.Family, (2,)),
    Case(
        "family-cut-short",
        families.Family,
        (3,),
        terminate,
        frozenset({"completed", "terminated"}),
    ),
    Case("till", f.Till, (3,), buy_three),
]

#: Of `rolling.py`, the same.
ROLLING = [
    Case("rolling", r.Rolling, (5, []), send_five),
    Case("rolling-early", r.Rolling, (5, []), send_five, early=True),
    Case("relay", r.relay, (["one", "two", "three"],)),
    Case("counting", r.counting, (4, [])),
    Case("relay-cancelled", r.relay, (["one", "two", "three"],), cancel, frozenset({"completed", "cancelled"})),
]

#: Of `publishing.py`, the same.
PUBLISHING = [
    Case("reciting", p.Reciting, (2,), follow_all),
]

#: Of `depending.py`. They need its activities, which only simulations with these cases have.
DEPENDING = [
    Case("booking", d.booking, (5,)),
]

#: Of `crowded.py`, the same; it ends well where nobody dies and nothing fails.
CROWDED = [
    Case("crowd", c.crowd, (9,)),
]

#: Of `resetting.py`, the same. An operator may end any run of them, to have another one go on.
RESETTING = [
    Case(
        "errand",
        resetting.Errand,
        ("errand",),
        note_three,
        frozenset({"completed", "failed", "cancelled", "terminated"}),
    ),
]

#: Of `shop.py`, the same. The last one takes a ledger whose database has tables of others too.
SHOP = [
    Case("selling", s.selling, (2,)),
    Case("selling-in-time", s.selling_in_time, (2,)),
    Case("paying", s.paying, ("rent", Secret(s.KEY))),
    Case("ordered", s.ordered, ("lamp",), times=2, beside=s.write_order),
]


#: Of `handed_out.py`, the same.
HANDED_OUT = [
    Case("delivering", h.delivering, (3,), deliver),
]


def start(sim: Simulation, case: Case, number: int = 1) -> None:
    for _ in range(case.times):
        sim.start(
            case.workflow, *case.args, id=f"{case.name}-{number}", then=case.then, beside=case.beside, **case.options
        )


def shops_books_are_right(sim: Simulation) -> list[str]:
    """Nothing to look at where no shop is simulated."""
    return s.each_step_sold_once(sim, sim.rows(s.TABLE))


def no_secret_is_kept(sim: Simulation) -> list[str]:
    """In no history, no row of an attempt, and no line of the log of attempts."""
    if not any(each.secrets for each in sim.activities.values()):
        return []
    sim.auditor.checks("no secret is kept")
    state = sim.state
    told = [
        *(stored.body for history in state.histories.values() for stored in history),
        *(repr(row).encode() for rows in state.tasks.values() for row in rows.values()),
        *(record.failure or b"" for log in state.attempts.values() for record in log),
    ]
    return [f"no secret is kept: {row!r}" for row in told for form in s.FORMS if form.encode() in row]


def every_run_ends_as_it_may(sim: Simulation) -> list[str]:
    """The cases' own expectation, as an invariant: of a chain, its last run ends so."""
    found = []
    for row in {row.chain_key: row for row in sim.state.runs.values()}.values():
        if row.workflow_type in families.OF_CHILDREN:
            continue  # a child: what its parent makes of its end is the parent's case
        name = row.workflow_id.rpartition("-")[0]
        every = [*CASES, *FURTHER, *ROLLING, *PUBLISHING, *DEPENDING, *CROWDED, *RESETTING, *SHOP, *HANDED_OUT]
        case = next(each for each in every if each.name == name)
        if row.status not in case.ends and row.run_key not in sim.auditor.parked:
            found.append(f"{row.workflow_id} ended as {row.status}")
    return found
