"""The golden histories: which behaviour each one holds, and how it came about."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pledger import Secret
from pledger.client import History, ResetReapplyType
from pledger.engine.limits import Limits
from pledger.errors import UpdateFailedError
from pledger.testing import Caller, replay
from pledger.testing.journal import Then
from tests.histories import blocks, models, resets, shop
from tests.histories import families as f
from tests.histories import workflows as w

FOLDER = Path(__file__).parent
#: Not who records it, and where.
OPERATOR = "ada@ops"


@dataclass(frozen=True)
class Case:
    """name: of the behaviour and its files. workflow: what it is replayed against.

    then: what the client did meanwhile. recorded_by: the code of that time, where that was another one.
    activities, knows: what its worker knew besides. limits: those of that worker. segment: which run of its chain.
    of: the workflow id of the run whose history it is, where that is another one than the run that was started.
    has_company: what other runs and clients send meets it sooner or later, as they come to it.
    """

    name: str
    workflow: Callable[..., Any] | type
    args: tuple[Any, ...] = ()
    then: Then | None = None
    recorded_by: Callable[..., Any] | type | None = None
    activities: Sequence[Any] = ()
    limits: Limits = field(default_factory=Limits)
    segment: int = 1
    knows: Sequence[Any] = ()
    of: str | None = None
    has_company: bool = False

    @property
    def json(self) -> Path:
        """The history as it was exported."""
        return FOLDER / f"{self.name}.json"

    @property
    def text(self) -> Path:
        """Its events for people."""
        return FOLDER / f"{self.name}.txt"

    def read(self) -> History:
        return History.read(self.json.read_bytes())


async def add_two_at_once(caller: Caller) -> None:
    await caller.signal(w.Basket.add, "lamp", message_id="first")
    await caller.signal(w.Basket.add, "chair", message_id="second")


async def add_two_later(caller: Caller) -> None:
    await asyncio.sleep(10)
    await caller.signal(w.Basket.add, "lamp", message_id="first")
    await asyncio.sleep(10)
    await caller.signal(w.Basket.add, "chair", message_id="second")


async def approve(caller: Caller) -> None:
    await asyncio.sleep(10)
    await caller.signal(w.Approval.decide, "yes", message_id="decision")


async def send_two(caller: Caller) -> None:
    await asyncio.sleep(10)
    await caller.signal(w.Errands.send, "far", 5.0, message_id="far")
    await caller.signal(w.Errands.send, "near", 1.0, message_id="near")


async def send_two_more(caller: Caller) -> None:
    await asyncio.sleep(10)
    await caller.signal(w.LastErrands.send, "far", 5.0, message_id="far")
    await caller.signal(w.LastErrands.send, "near", 1.0, message_id="near")


async def vote(caller: Caller) -> None:
    await asyncio.sleep(10)
    by_mail = asyncio.create_task(caller.update(w.Ballot.vote_by_mail, "ada", 5.0, id="ada"))
    await asyncio.sleep(1)  # what is asked at the same time may come in any order
    await caller.update(w.Ballot.vote, "bob", id="bob")
    await caller.update(w.Ballot.vote, "bob", id="bob-again")
    await by_mail
    with contextlib.suppress(UpdateFailedError):
        await caller.handle.execute_update("shout", "cem", id="cem")
    await caller.update(w.Ballot.vote, "dan", id="dan")


async def note_early(caller: Caller) -> None:
    await caller.signal("other", "b", message_id="first")
    await asyncio.sleep(10)
    await caller.signal("note", "a", message_id="second")
    await asyncio.sleep(20)
    await caller.signal("note", "c", message_id="third")


async def cancel(caller: Caller) -> None:
    await asyncio.sleep(10)
    await caller.cancel("the customer changed her mind")


async def cancel_twice(caller: Caller) -> None:
    await cancel(caller)
    await asyncio.sleep(10)
    await caller.cancel("she means it")


async def count_up(caller: Caller) -> None:
    await caller.signal(w.Counter.add, 1, message_id="first")
    await asyncio.sleep(10)
    await caller.signal(w.Counter.add, 2, message_id="second")


async def give_up(caller: Caller) -> None:
    await asyncio.sleep(10)
    await caller.signal(w.Counter.give_up, "no use", message_id="give-up")


async def hand_out_four(caller: Caller) -> None:
    """The third one comes in the moment of the roll-over."""
    for n, name in enumerate(("lamp", "chair", "table", "bed")):
        await asyncio.sleep(10 if n in (0, 1, 3) else 0)
        await caller.signal(w.Rounds.take, name, message_id=name)


async def terminate(caller: Caller) -> None:
    await asyncio.sleep(10)
    await caller.terminate("an operator has had enough")


async def stop(caller: Caller) -> None:
    await asyncio.sleep(10)
    await caller.signal(blocks.Stoppable.stop, message_id="stop")


async def answer(caller: Caller) -> None:
    await asyncio.sleep(10)
    await caller.signal(blocks.Phases.say, "yes", message_id="answer")


async def send_and_fail(caller: Caller) -> None:
    await asyncio.sleep(10)
    await caller.signal(resets.Parcel.send_to, "the docks", message_id="address")
    await caller.outcome()


async def redrive(caller: Caller) -> None:
    await send_and_fail(caller)
    await caller.redrive("they are at home now", by=OPERATOR)


async def reset_to_the_start(caller: Caller) -> None:
    await send_and_fail(caller)
    await caller.reset(1, reason="the wrong number", by=OPERATOR)


async def reset_a_reset_run(caller: Caller) -> None:
    """The first one to before the message, which is left out; then that one to between two outcomes."""
    await send_and_fail(caller)
    await caller.reset(5, reason="the wrong address", reapply=ResetReapplyType.NONE, by=OPERATOR)
    await asyncio.sleep(10)
    await caller.signal(resets.Parcel.send_to, "the mill", message_id="another")
    await caller.outcome()
    await caller.reset(4, reason="the wrong parcel", by=OPERATOR)


CASES = [
    Case("sequence", w.sequence, (3,)),
    Case("fan-out", w.fan_out, (4,)),
    Case("wide-fan-out", w.fan_out, (7,), limits=Limits(commands_max=3)),
    Case("equal-parallel-steps", w.equal_steps, (3,)),
    Case("first-of-several", w.first_of_several),
    Case("queue-and-lock", w.queue_and_lock, (3,)),
    Case("typed-payloads", w.typed_payloads, (w.PARCEL,)),
    Case("model-payloads", models.model_payloads, (models.BOOKING,)),
    Case("draws", w.draws),
    Case("timers", w.timers),
    Case("cancelled-timer", w.cancelled_timer),
    Case("activity-cancelled", w.activity_cancelled),
    Case("timed-out", w.timed_out),
    Case("signals-before-start", w.Basket, (2,), add_two_at_once),
    Case("signals-after-start", w.Basket, (2,), add_two_later),
    Case("wait-condition-met", w.Approval, (), approve),
    Case("wait-condition-timed-out", w.Approval),
    Case("async-signal-handler", w.Errands, (2,), send_two),
    Case("handlers-awaited", w.LastErrands, (), send_two_more),
    Case("published", w.publishing, (2,)),
    Case("updates", w.Ballot, (3,), vote),
    Case("handlers-set-later", w.handlers_set_later, (2,), note_early),
    Case("retries-exhausted", w.retries_exhausted),
    Case("failure-with-causes", w.failure),
    Case("run-cancelled", w.run_cancelled, (), cancel),
    Case("cancelled-finishes", w.cancelled_finishes, (), cancel),
    Case("terminated", w.timers, (), terminate),
    Case("task-group-abort", w.task_group_abort),
    Case("children", f.with_children, knows=[f.double, f.gives_up]),
    Case("child-cancelled", f.cancels_its_children, knows=[f.sleeper], has_company=True),
    Case("messages-to-other-runs", f.writes_to_others, knows=[f.Letters]),
    Case("children-of-the-last-breath", f.last_breath, knows=[f.double, f.Letters]),
    Case("born-as-a-child", f.double, recorded_by=f.double_and_its_parent, knows=[f.double], of="child"),
    Case("patch-new-side", w.with_patch),
    Case("patch-old-side", w.with_patch, recorded_by=w.before_change),
    Case("patch-deprecated", w.after_change, recorded_by=w.with_patch),
    Case("patch-born-deprecated", w.with_patch, recorded_by=w.after_change),
    Case("patch-removed", w.patch_removed, recorded_by=w.after_change),
    Case("activities-as-tasks", w.activities_as_tasks, (3,)),
    Case("sets-of-tasks", w.sets_of_tasks),
    Case("limits-of-time", w.limits_of_time),
    Case("context-variables", w.context_variables),
    Case("async-generator", w.async_generator),
    Case("init-and-signals", w.Counter, (10,), count_up),
    Case("search-attributes-and-memo", w.labels, (7,)),
    Case("handler-fails-run", w.Counter, (10,), give_up),
    Case("continued-as-new", w.Rounds, (2, []), hand_out_four, has_company=True),
    Case("checkpoint", w.checkpointed, (5, []), limits=Limits(history_events_max=20)),
    Case("successor", w.Rounds, (2, []), hand_out_four, segment=2, has_company=True),
    Case("shielded-clean-up", w.shielded_clean_up, (), cancel_twice),
    Case("redriven", resets.Parcel, (), redrive, activities=resets.ACTIVITIES),
    Case("reset-to-the-start", resets.Parcel, (), reset_to_the_start, activities=resets.ACTIVITIES),
    Case("reset-twice", resets.Parcel, (), reset_a_reset_run, activities=resets.ACTIVITIES),
    Case("steps-in-transactions", shop.steps_in_transactions, (["chair", "table", "bed"],), activities=shop.ACTIVITIES),
    Case("secrets-by-reference", shop.secrets_by_reference, (Secret("bank-key"),), activities=shop.ACTIVITIES),
    Case("deadlines", blocks.deadlines),
    Case("scope-cancelled", blocks.Stoppable, (), stop),
    Case("shield", blocks.shielded, (), cancel_twice),
    Case("race", blocks.race, activities=[blocks.patient]),
    Case("phases", blocks.Phases, (), answer),
]


def replay_all() -> Iterator[tuple[Case, int]]:
    """Replay every history against today's code; each case with how many events it has."""
    for case in CASES:
        yield case, replay(case.json, case.workflow)
