"""Law: a value of the wrong type or range is refused where it is given, or leaves a history that reads back.

What is written and cannot be read again blocks its run for ever, long after the line that gave it.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

import pytest

from pledger import (
    Client,
    Limit,
    Priority,
    RetryBudget,
    RetryPolicy,
    SearchAttributeKey,
    Worker,
    activity,
    connect,
    workflow,
)
from pledger.client import Stream, WorkflowHandle, WorkflowUpdateStage
from pledger.errors import NoWorkerError, UsageError
from pledger.history import transition
from pledger.history.attributes import KINDS
from pledger.history.budget import CircuitBreaker
from tests.unit.machine.harness import DrivenRun


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Share(float):
    pass


class Level(enum.IntEnum):
    HIGH = 1


class Name(enum.StrEnum):
    PAY = "pay"


#: Whatever an option takes, most of these are something else.
ODD: Final[list[Any]] = [
    *(0, 1, -1, 7421, 2**31, 2**63, 2**64, 10**400, Number(2), Level.HIGH, True, False),
    *(0.0, 1.0, 3.0, 0.5, Share(1.0), math.nan, math.inf, Decimal(1)),
    *("", "a", "\ud800", "a\0b", "a" * 5_000, Text("pay"), Name.PAY, b"pay"),
    *([], ["a"], [5], [ValueError], ["\ud800"], [Text("pay")], {}, (), object(), ValueError),
    *(
        timedelta(0),
        timedelta(seconds=-1),
        timedelta(seconds=1),
        timedelta.max,
        timedelta.min,
        timedelta(days=3_000_000),
    ),
    *(Priority(1), RetryPolicy(), lambda *_: 5, lambda *_: "\ud800", lambda *_: Text("pay"), None),
]


@activity.defn
async def step() -> None:
    return None


def call(option: str) -> Callable[[Any], object]:
    return lambda value: workflow.start_activity(step, **{option: value})


def by_name(value: Any) -> object:
    return workflow.start_activity(value)


def policy(option: str) -> Callable[[Any], object]:
    return lambda value: workflow.start_activity(step, retry_policy=RetryPolicy(**{option: value}))


def priority(option: str) -> Callable[[Any], object]:
    return lambda value: workflow.start_activity(step, priority=Priority(**{option: value}))


def defined(option: str) -> Callable[[Any], object]:
    async def other() -> None:
        return None

    return lambda value: activity.defn(**{option: value})(other)()


def limited(option: str) -> Callable[[Any], object]:
    async def other() -> None:
        return None

    return lambda value: activity.defn(limits=[Limit(**{"name": "api", "rate": 1.0, option: value})])(other)()


def budgeted(option: str) -> Callable[[Any], object]:
    return lambda value: RetryBudget(**{"name": "api", option: value}).rule()


def broken(option: str) -> Callable[[Any], object]:
    return lambda value: RetryBudget("api", breaker=CircuitBreaker(**{option: value})).rule()


def rolled(option: str) -> Callable[[Any], object]:
    return lambda value: workflow.continue_as_new(0, **{option: value})


def described(option: str) -> Callable[[Any], object]:
    return lambda value: workflow.start_child_workflow("order", **{option: value})


def kept(kind: str) -> Callable[[Any], object]:
    key = getattr(SearchAttributeKey, f"for_{kind}")("amount")
    return lambda value: workflow.upsert_search_attributes([key.value_set(value)])


class OneName(Mapping[Any, int]):
    """Its name may be what no dict can have."""

    def __init__(self, name: Any) -> None:
        self.name = name

    def __getitem__(self, name: Any) -> int:
        return 1

    def __iter__(self) -> Iterator[Any]:
        return iter([self.name])

    def __len__(self) -> int:
        return 1


IN_CODE: Final[dict[str, Callable[[Any], object]]] = {
    "activity by name": by_name,
    "publish topic": lambda value: workflow.publish(value, 1),
    "patched": workflow.patched,
    "deprecate_patch": workflow.deprecate_patch,
    **{
        f"start_activity {name}": call(name)
        for name in (
            *("start_to_close_timeout", "schedule_to_close_timeout", "schedule_to_start_timeout", "heartbeat_timeout"),
            *("retry_policy", "task_queue", "cancellation_type", "idempotency_key", "priority"),
        )
    },
    **{
        f"RetryPolicy {name}": policy(name)
        for name in (
            *("initial_interval", "backoff_coefficient", "maximum_interval", "maximum_attempts"),
            *("non_retryable_error_types", "jitter"),
        )
    },
    **{f"Priority {name}": priority(name) for name in ("priority_key", "fairness_key", "fairness_weight")},
    **{f"activity.defn {name}": defined(name) for name in ("name", "task_queue", "start_to_close_timeout", "priority")},
    **{f"continue_as_new {name}": rolled(name) for name in ("workflow", "task_queue", "deadline")},
    **{f"start_child_workflow {name}": described(name) for name in ("search_attributes", "memo")},
    **{f"search attribute {kind}": kept(kind) for kind in KINDS},
    "SearchAttributeKey": lambda value: SearchAttributeKey.for_keyword(value).value_set("a"),
    "upsert_search_attributes": workflow.upsert_search_attributes,
    "upsert_memo": workflow.upsert_memo,
    "upsert_memo name": lambda value: workflow.upsert_memo(OneName(value)),
    **{f"Limit {name}": limited(name) for name in ("name", "concurrency", "rate", "per", "key")},
    **{f"RetryBudget {name}": budgeted(name) for name in ("name", "ratio", "minimum_per_second", "window", "breaker")},
    **{f"CircuitBreaker {name}": broken(name) for name in ("failure_ratio", "minimum_calls", "pause", "maximum_pause")},
}


@workflow.defn
async def asks(ask: int) -> None:
    CALLS[ask]()
    await workflow.sleep(1)


#: What the run that is being driven does.
CALLS: Final[dict[int, Callable[[], object]]] = {}


@pytest.mark.parametrize("option", IN_CODE)
def test_what_code_gives_is_refused_or_reads_back(option: str) -> None:
    refused = 0
    for value in ODD:
        CALLS[0] = lambda value=value: IN_CODE[option](value)  # type: ignore[misc] # bound at once
        run = DrivenRun(asks, 0)
        try:
            run.start()
        except UsageError:
            refused += 1
        else:
            (written,) = run.transitions
            assert transition.decode(transition.encode(written)) == written, value
        run.machine.destroy()
    assert refused > len(ODD) // 3  # most of these values fit nowhere


@workflow.defn
class Waits:
    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.signal
    def hurry(self) -> None:
        pass

    @workflow.update
    def set(self) -> None:
        pass


async def read_all(handle: WorkflowHandle[Any]) -> None:
    """What the ledger has of the run, its start included, which no worker has taken yet."""
    told = await handle.describe()
    starts = [transition.decode_started(each.body) for each in told.inbox if each.kind == "start"]
    assert starts or told.history.events


def started(option: str) -> Callable[[Client, Any], Awaitable[object]]:
    return lambda client, value: client.start_workflow(Waits, **{"id": "order-2", option: value})


def told(verb: str, *args: Any, option: str = "reason") -> Callable[[Client, Any], Awaitable[object]]:
    return lambda client, value: getattr(client.handle("order-1"), verb)(*args, **{option: value})


def started_with(option: str) -> Callable[[Client, Any], Awaitable[object]]:
    """A start with a signal."""
    given = {"id": "order-2", "start_signal": "hurry"}
    return lambda client, value: client.start_workflow(Waits, **{**given, option: value})


def updated(option: str) -> Callable[[Client, Any], Awaitable[object]]:
    """Nobody takes it: it was not refused before."""

    async def update(client: Client, value: Any) -> None:
        given = {"wait_for_stage": WorkflowUpdateStage.ACCEPTED, "timeout": timedelta(0), "update": "set"}
        with contextlib.suppress(NoWorkerError):
            await client.handle("order-1").start_update(**{**given, option: value})

    return update


async def _all(items: Stream[Any]) -> None:
    assert [item async for item in items] == []


BY_CLIENT: Final[dict[str, Callable[[Client, Any], Awaitable[object]]]] = {
    "workflow by name": lambda client, value: client.start_workflow(value, id="order-2"),
    **{
        f"start_workflow {name}": started(name)
        for name in ("id", "task_queue", "execution_timeout", "priority", "search_attributes", "memo")
    },
    "signal": lambda client, value: client.handle("order-1").signal(value),
    "signal message_id": told("signal", "hurry", option="message_id"),
    **{name: started_with(name) for name in ("start_signal", "start_signal_args", "start_signal_id")},
    **{f"update {name}": updated(name) for name in ("update", "id", "wait_for_stage")},
    "cancel reason": told("cancel"),
    "terminate reason": told("terminate"),
    "reset event": lambda client, value: client.handle("order-1").reset(value),
    **{f"reset {name}": told("reset", 1, option=name) for name in ("reason", "by", "reapply")},
    "pause reason": told("pause"),
    "pause by": told("pause", option="by"),
    "stream topic": lambda client, value: _all(client.handle("order-1").stream(value, follow=False)),
    "stream offset": lambda client, value: _all(client.handle("order-1").stream("progress", value, follow=False)),
}


@pytest.mark.parametrize("option", BY_CLIENT)
def test_what_clients_give_is_refused_or_reads_back(option: str) -> None:
    async def try_all() -> int:
        refused = 0
        for value in ODD:
            async with connect(f"memory://{option}") as client:
                first = await client.start_workflow(Waits, id="order-1")
                try:
                    handle = await BY_CLIENT[option](client, value)
                except UsageError:
                    refused += 1
                else:
                    for each in (first, handle):
                        if isinstance(each, WorkflowHandle):
                            await read_all(each)
        return refused

    assert asyncio.run(try_all()) > len(ODD) // 3


@pytest.mark.parametrize("option", ["deadline", "retention", "owner", "name"])
def test_what_definitions_give_is_refused_or_told(option: str) -> None:
    async def try_all() -> None:
        for value in ODD:

            async def order() -> None:
                return None

            try:
                workflow.defn(**{option: value})(order)  # type: ignore[call-overload] # that is the point
            except UsageError:
                continue
            async with connect(f"memory://{option}") as client:
                await read_all(await client.start_workflow(order, id="order-1"))

    asyncio.run(try_all())


@pytest.mark.parametrize(
    "option",
    ["task_queue", "build_id", "identity", "lease", "grace", "deadlock_timeout", "retention", "max_cached_runs"],
)
def test_what_workers_are_given_is_refused_or_taken(option: str) -> None:
    async def try_all() -> int:
        refused = 0
        async with connect("memory://workers") as client:
            for value in ODD:
                try:
                    Worker(client, workflows=[Waits], **{option: value})
                except UsageError:
                    refused += 1
        return refused

    assert asyncio.run(try_all()) > len(ODD) // 3
