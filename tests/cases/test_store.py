"""The cases about the store: outages, values that databases and JSON do not take alike, and whose clock counts."""

from __future__ import annotations

import ast
import asyncio
import inspect
import itertools
import json
import logging
import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, TypedDict
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

import pledger
from pledger import RetryPolicy, activity, errors, workflow
from pledger.engine.limits import Limits
from pledger.engine.port.verbs import Store
from pledger.store.sqlfiles import load_queries
from pledger.testing import Environment, Faults, Simulation, seats
from pledger.testing.scheduler import NodeClock
from tests.cases.harness import BEGAN
from tests.cases.virtual import out_of_reach
from tests.engine.harness import Ledger, until
from tests.unit.history.models import assert_same

Virtual = Callable[..., Environment]
ONCE = RetryPolicy(maximum_attempts=1)
AGAIN = RetryPolicy(maximum_attempts=3, initial_interval=timedelta(0))


def strict(text: bytes) -> Any:
    """RFC 8259 and nothing more."""

    def refuse(constant: str) -> None:
        pytest.fail(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse, parse_float=Decimal)


def type_and_message(error: BaseException | None) -> list[str]:
    assert isinstance(error, errors.ApplicationError)
    return [error.type, error.message]


# STO-03 ---------------------------------------------------------------------------------------------------------------


def test_STO_03_the_engines_loops_survive_an_outage_of_the_store(
    virtual: Virtual, caplog: pytest.LogCaptureFixture
) -> None:
    """Every five seconds a step, without the schedules that are still to come; the store is away from 30 s to 60 s."""
    ticks: list[float] = []

    @activity.defn
    async def tick(number: int) -> int:
        ticks.append((env.now() - BEGAN).total_seconds())
        return number

    @workflow.defn
    async def every_five_seconds(rounds: int) -> list[int]:
        done = []
        for number in range(rounds):
            await workflow.sleep(5)
            done.append(await tick(number))
        return done

    env = virtual(workflows=[every_five_seconds], activities=[tick], now=BEGAN)
    handle = env.start(every_five_seconds, 18, id="order-1")
    env.sleep(timedelta(seconds=30))
    before = len(ticks)
    with out_of_reach(env):
        env.sleep(timedelta(seconds=30))
    assert len(ticks) == before
    # Not later than one period and the longest pause between two tries after the store is back.
    env.sleep(timedelta(seconds=5 + 5))
    assert len(ticks) > before
    assert handle.result() == [*range(18)]
    # Each tick once. The missed ones come later, none is left out: the loop counts, it does not look at a calendar.
    assert len(ticks) == 18
    assert all(later - earlier >= 4.99 for earlier, later in itertools.pairwise(ticks))
    # Leases and claims go on as well: a run that is started now is served.
    assert env.run(every_five_seconds, 1, id="order-2") == [0]
    # Said once when it went away and once when it was back.
    told = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert [text for text in told if "the store is back after" in text] == told[-1:]
    assert "go on by themselves once it is back" in told[0]


# STO-04 ---------------------------------------------------------------------------------------------------------------

ROUND_TRIPS = ["a\x00b", "\U0001f600", "\x01\x7f", {"k\x00": 1}]
HALF = "\ud83d"


@activity.defn(retry_policy=ONCE)
async def give(value: Any) -> Any:
    return value


@activity.defn(retry_policy=AGAIN)
async def give_half() -> dict[str, Any]:
    tried.append(1)
    return {"log": ["ok", HALF]}


tried: list[int] = []


@activity.defn(retry_policy=ONCE)
async def fail_with(value: Any) -> None:
    raise errors.ApplicationError(str(value), value)


@activity.defn(retry_policy=ONCE)
async def fail_with_half() -> None:
    raise errors.ApplicationError(f"half of one: {HALF}")


@workflow.defn
class Keeps:
    """Has the value come in every way: argument, step result, error message and details, signal."""

    def __init__(self) -> None:
        self.signalled: list[Any] = []

    @workflow.run
    async def run(self, value: Any) -> dict[str, Any]:
        result = await give(value)
        try:
            await fail_with(value)
        except errors.ActivityError as error:
            cause = error.__cause__
            assert isinstance(cause, errors.ApplicationError)
        await workflow.wait_condition(lambda: bool(self.signalled))
        return {"arg": value, "result": result, "signal": self.signalled[0], "details": cause.details[0]} | {
            "message": cause.message
        }

    @workflow.signal
    def note(self, value: Any) -> None:
        self.signalled.append(value)


@pytest.mark.parametrize("value", ROUND_TRIPS, ids=ascii)
async def test_STO_04_control_characters_round_trip_in_every_place(ledger: Ledger, value: Any) -> None:
    async with ledger.connect() as client, ledger.worker(client, Keeps, give, fail_with, max_cached_runs=1):
        handle = await client.start_workflow(Keeps, value, id="order-1")
        await handle.signal(Keeps.note, value)
        told = await handle.result()
        assert told.pop("message") == str(value)
        for came_back in told.values():
            assert_same(came_back, value)
        strict((await handle.history()).export())


@workflow.defn
async def tells_what_failed() -> list[Any]:
    told: list[Any] = []
    for step in (give_half, fail_with_half):
        try:
            await step()
        except errors.ActivityError as error:
            told.append([error.retry_state, error.attempt, *type_and_message(error.__cause__)])
    return told


async def test_STO_04_half_of_an_emoji_is_refused_by_its_path_wherever_it_is(ledger: Ledger) -> None:
    tried.clear()
    async with ledger.connect() as client:
        async with ledger.worker(client, Keeps, tells_what_failed, give, give_half, fail_with, fail_with_half):
            with pytest.raises(errors.PayloadError, match=r"\$\[0\]\.log.*nothing is stripped silently"):
                await client.start_workflow(Keeps, {"log": HALF}, id="order-1")
            handle = await client.start_workflow(Keeps, "ok", id="order-2")
            with pytest.raises(errors.PayloadError, match=r"'order-2'.*half of a surrogate pair"):
                await handle.signal(Keeps.note, HALF)
            await handle.terminate()
            result, message = await client.execute_workflow(tells_what_failed, id="order-3")
        assert [each.workflow_id async for each in client.list("status = 'running'")] == []
    # A step whose result cannot be kept fails, visibly, at once and for good.
    assert len(tried) == 1
    assert result[:3] == ["non_retryable", 1, "PayloadError"]
    assert "$.log[1]: the string holds half of a surrogate pair" in result[3]
    # In a message for people it is spelt out.
    assert message[2:] == ["ApplicationError", "half of one: \\ud83d"]


# STO-05 ---------------------------------------------------------------------------------------------------------------
# The command line is in tests/acceptance/test_cli.py.

DIGITS = ("3544790567247868102", "9007199254740991", "0.2345678901234568")


async def test_STO_05_integers_beyond_doubles_arrive_exactly(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Keeps, give, fail_with):
        order = json.loads('{"id": 3544790567247868102, "small": 9007199254740991, "dec": 0.2345678901234568}')
        handle = await client.start_workflow(Keeps, order, id="order-1")
        await handle.signal(Keeps.note, order)
        told = await handle.result()
        assert told["arg"]["id"] == told["result"]["id"] == told["signal"]["id"] == 3544790567247868102
        history = await handle.history()
        text = history.export()
        for digits in DIGITS:
            # In arguments, a result, a signal, a failure's details and message, and all of these in the run's result.
            assert text.count(digits.encode()) == text.count(digits[:14].encode()) == 13
        # Copied out of the history and started again.
        [again] = strict(text)["transitions"][0]["inputs"][0]["args"]
        assert (again["id"], str(again["dec"])) == (3544790567247868102, DIGITS[2])
        numbers = [each.event_id for each in history.events]
    assert max(numbers) < Limits().history_events_max < 2**53


# STO-06 ---------------------------------------------------------------------------------------------------------------


@workflow.defn
async def tells_of_a_step(number: str) -> list[Any]:
    try:
        return [await give_number(number)]
    except errors.ActivityError as error:
        return [error.retry_state, *type_and_message(error.__cause__)]


@activity.defn
async def give_number(number: str) -> dict[str, float]:
    return {"rate": float(number)}


@workflow.defn
async def returns_a_number(number: str) -> dict[str, float]:
    return {"rate": float(number)}


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e400"])
async def test_STO_06_nan_and_infinities_are_refused_by_their_path(ledger: Ledger, number: str) -> None:
    async with ledger.connect() as client, ledger.worker(client, tells_of_a_step, returns_a_number, give_number):
        told = await client.execute_workflow(tells_of_a_step, number, id="order-1")
        assert told[:2] == ["non_retryable", "PayloadError"]
        assert "$.rate" in told[2]
        assert "not a JSON number (RFC 8259)" in told[2]
        # The result of a workflow is its own line: a bug, told at once with the run intact.
        handle = await client.start_workflow(returns_a_number, number, id="order-2")
        with pytest.raises(errors.RunBlockedError, match=r"\$\.rate: .*RFC 8259"):
            await handle.result()
        for workflow_id in ("order-1", "order-2"):
            history = await client.handle(workflow_id).history()
            strict(history.export())
            assert not any(each.type == "RunCompleted" for each in history.events if workflow_id == "order-2")
        with pytest.raises(errors.PayloadError, match=r"\$\[0\]"):
            await client.start_workflow(tells_of_a_step, float(number), id="order-3")


async def test_STO_06_negative_zero_keeps_its_sign(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, tells_of_a_step, returns_a_number, give_number):
        [step] = await client.execute_workflow(tells_of_a_step, "-0.0", id="order-1")
        whole = await client.execute_workflow(returns_a_number, "-0.0", id="order-2")
    assert str(step["rate"]) == str(whole["rate"]) == "-0.0"


# STO-07 ---------------------------------------------------------------------------------------------------------------

VALUE = {
    "at": datetime(2024, 11, 3, 1, 30, tzinfo=ZoneInfo("America/New_York"), fold=1),
    "amt": Decimal("0.10"),
    "big": Decimal("1E+30"),
    "raw": b"\x00\xff",
    "id": UUID(int=5),
    "t": (1, 2),
    "keys": {1: "a"},
}


class Typed(TypedDict):
    at: datetime
    amt: Decimal
    big: Decimal
    raw: bytes
    id: UUID
    t: tuple[int, int]
    keys: dict[int, str]


@activity.defn
async def give_untyped() -> dict[str, Any]:
    return VALUE


@activity.defn
async def give_typed() -> Typed:
    return VALUE  # type: ignore[return-value]


def spelt(value: dict[str, Any]) -> str:
    """Types, exponents, fold and offset show in it."""
    return f"{value!r} fold {value['at'].fold} offset {value['at'].utcoffset()}"


@workflow.defn
class Shows:
    shown: str = ""
    go = False

    @workflow.run
    async def run(self, how: str) -> str:
        value: Any = await (give_typed() if how == "typed" else give_untyped())
        self.shown = spelt(value)
        await workflow.wait_condition(lambda: self.go)
        return self.shown

    @workflow.signal
    def finish(self) -> None:
        self.go = True

    @workflow.query
    def seen(self) -> str:
        return self.shown


@pytest.mark.parametrize("how", ["typed", "untyped"])
async def test_STO_07_the_replayed_value_is_the_live_one(ledger: Ledger, how: str) -> None:
    async with ledger.connect() as client:
        handle = await client.start_workflow(Shows, how, id="order-1")
        async with ledger.worker(client, Shows, give_typed, give_untyped):
            live = await until(lambda: handle.query(Shows.seen))
        # Another worker, which has the history and nothing else.
        async with ledger.worker(client, Shows, give_typed, give_untyped):
            assert await handle.query(Shows.seen) == live
            await handle.signal(Shows.finish)
            assert await handle.result() == live == spelt(VALUE)


NAIVE = datetime(2024, 1, 1)  # noqa: DTZ001 - that is the point


class OfMine:
    pass


@activity.defn
async def give_naive() -> dict[str, Any]:
    return {**VALUE, "naive": NAIVE}


@activity.defn
async def give_mine() -> dict[str, Any]:
    return {"parts": [1, OfMine()]}


@workflow.defn
async def tells_of_both() -> list[list[Any]]:
    told = []
    for step in (give_naive, give_mine):
        try:
            await step()
        except errors.ActivityError as error:
            told.append([error.attempt, str(error.__cause__)])
    return told


async def test_STO_07_what_is_outside_of_the_list_is_refused_at_the_first_run(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, tells_of_both, give_naive, give_mine):
        naive, mine = await client.execute_workflow(tells_of_both, id="order-1")
    assert naive[0] == mine[0] == 1
    assert "at $.naive: a naive datetime names no instant" in naive[1]
    assert "at $.parts[1]: a value of type tests.cases.test_store.OfMine" in mine[1]


# STO-09 ---------------------------------------------------------------------------------------------------------------


@activity.defn(start_to_close_timeout=timedelta(minutes=5), retry_policy=AGAIN)
async def twenty_seconds(number: int) -> int:
    await asyncio.sleep(20)
    return number


@workflow.defn
async def a_step_a_minute(rounds: int) -> list[int]:
    done = []
    for number in range(rounds):
        started = workflow.now()
        done.append(await twenty_seconds(number))
        await workflow.sleep(timedelta(minutes=1) - (workflow.now() - started))
    return done


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgres"])
@pytest.mark.parametrize("seed", range(3))
def test_STO_09_what_the_workers_clocks_show_moves_nothing(
    seed: int, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One worker's clock is ten minutes ahead, the other's an hour behind; both drift by what a machine's may."""
    skews_s: Iterator[float] = iter([600.0, -3_600.0])
    monkeypatch.setattr(seats, "NodeClock", lambda offset_s, rate: NodeClock(next(skews_s, 0.0), rate))
    sim = Simulation(
        seed,
        store=store,
        workflows=[a_step_a_minute],
        activities=[twenty_seconds],
        workers=2,
        limits=Limits(lease_ms=30_000),
        faults=Faults(clock_drift=0.0005),
    )
    for number in range(25):
        sim.start(a_step_a_minute, 4, id=f"order-{number}")
    sim.run_until_idle()
    # Among what it checks: no timer early by the store's time, no write with an old fence, one outcome per step.
    sim.check()
    assert next(skews_s, None) is None
    attempts = [len(each.attempts) for each in sim.world.activities.values()]
    assert attempts == [1] * 100
    for program in sim.programs:
        [outcome] = program.journal.outcomes
        assert outcome.value == [0, 1, 2, 3]


def test_STO_09_a_large_skew_is_reported(virtual: Virtual, caplog: pytest.LogCaptureFixture) -> None:
    @workflow.defn
    async def sleeps() -> None:
        await workflow.sleep(60)

    env = virtual(workflows=[sleeps], now=BEGAN)
    env.run(sleeps, id="order-1")
    assert [each for each in caplog.records if "clock" in each.getMessage()] == []
    for skew_s in (600, -3_600):
        env._inner._began_ms += skew_s * 1000
        env.sleep(timedelta(seconds=1))
    told = [each.getMessage() for each in caplog.records if "clock" in each.getMessage()]
    assert len(told) == 2
    assert "the ledger's clock went forward by 600.0 s" in told[0]
    assert "the ledger's clock went back by 3600.0 s" in told[1]


#: Of each database: its own clock, and the statements that write or compare the end of a lease.
JUDGES = {
    "sqlite": (
        "(SELECT now_ms FROM pledger_clock)",
        {"open_session", "renew_session", "has_expired_session", "end_expired_sessions", "look"},
    ),
    "postgres": ("pledger.now_ms()", {"open_session", "renew_session", "end_expired_sessions", "look"}),
}


@pytest.mark.parametrize("database", JUDGES)
def test_STO_09_leases_are_written_and_compared_by_the_stores_clock_in_one_statement(database: str) -> None:
    clock, names = JUDGES[database]
    leases = {
        name: text
        for name, text in load_queries(f"pledger.store.{database}", "sessions").items()
        if re.search(r"pledger[_.]session\b", text)
    }
    # The others only show when a lease is over, or give it up.
    judging = {
        name: text
        for name, text in leases.items()
        if "expires_ms" in text and name not in {"read_sessions", "end_session"}
    }
    assert judging.keys() == names
    for text in judging.values():
        assert clock in text
    # Nobody tells the store the time with it: there is no such argument. (That of a look is for what is due.)
    for verb in (Store.open_session, Store.renew_session, Store.bury_sessions):
        assert not {"now_ms", "time_ms"} & inspect.signature(verb).parameters.keys()


def test_STO_09_no_part_of_the_engine_reads_a_wall_clock() -> None:
    """The memory store's own clock is a wall clock, as a database's is."""
    root = Path(pledger.__file__).parent
    allowed = {root / "store" / "memory" / "state.py"}
    found = []
    for package in ("engine", "machine", "history", "store"):
        for path in sorted((root / package).rglob("*.py")):
            calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
            names = {ast.unparse(call.func) for call in calls}
            if names & {"time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "date.today"}:
                found.append(path)
    assert set(found) == allowed
