"""Activities in a transaction that records their result: the effect is there once, exactly if the history says so."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import apsw
import psycopg
import pytest

from pledger import Client, RetryPolicy, Worker, activity, workflow
from pledger.client import History
from pledger.engine.port.answers import Reply
from pledger.errors import ActivityError, InvalidPolicyError, StoreUnavailableError, UsageError
from pledger.testing import environment
from tests import servers
from tests.engine.harness import LEASE, until, worker_process
from tests.engine.shop import Shop

QUICK = RetryPolicy(initial_interval=timedelta(milliseconds=1), maximum_attempts=5)
ONCE = RetryPolicy(maximum_attempts=1)

#: What the activities of a test do besides, by its name: set by `during`.
_acts: dict[str, Callable[[], Any]] = {}


@contextmanager
def during(act: Callable[[], Any], order: str = "o-1") -> Iterator[None]:
    """What the attempts of the order do after their insert."""
    _acts[order] = act
    try:
        yield
    finally:
        del _acts[order]


async def book(order: str, table: str, mark: str) -> str:
    connection = activity.connection()
    await connection.execute(f"INSERT INTO {table} VALUES ({mark})", (order,))
    if order in _acts:
        done = _acts[order]()
        if isinstance(done, Awaitable):
            await done
    return _result(order)


def book_plainly(order: str, table: str, mark: str) -> str:
    connection = activity.connection()
    connection.execute(f"INSERT INTO {table} VALUES ({mark})", (order,))
    if order in _acts:
        _acts[order]()
    return _result(order)


def _result(order: str) -> str:
    return f"{order} is booked by attempt {activity.info().attempt}" + "!" * (500 if order == "long" else 0)


on_the_loop = activity.defn(name="book", transaction="shop", retry_policy=QUICK)(book)
in_a_thread = activity.defn(name="book", transaction="shop", retry_policy=QUICK)(book_plainly)
BOTH = pytest.mark.parametrize("step", [on_the_loop, in_a_thread], ids=["on-the-loop", "in-a-thread"])


def arguments(shop: Shop, order: str = "o-1") -> tuple[str, str, str]:
    return order, shop.table, "%s" if shop.is_postgres else "?"


def serves(shop: Shop, client: Client, *definitions: Any, **options: Any) -> Worker:
    return shop.ledger.worker(client, *definitions, transactions={"shop": None}, **options)


def sold(step: Any) -> Any:
    """A workflow of one step."""

    @workflow.defn
    async def sold(order: str, table: str, mark: str) -> str:
        try:
            return await step(order, table, mark)  # type: ignore[no-any-return]
        except ActivityError as error:
            return f"not sold: {type(error.__cause__).__name__}"

    return sold


def _completions(history: History) -> int:
    return [type(each.event).__name__ for each in history.events].count("ActivityCompleted")


@BOTH
async def test_the_effect_comes_with_the_result(shop: Shop, step: Any) -> None:
    run = sold(step)
    async with shop.ledger.connect() as client, serves(shop, client, run, step):
        assert await client.execute_workflow(run, *arguments(shop), id="o-1") == "o-1 is booked by attempt 1"
        history = await client.handle("o-1").history()
        assert _completions(history) == 1
    assert shop.orders() == ["o-1"]


@BOTH
async def test_an_attempt_that_fails_leaves_nothing(shop: Shop, step: Any) -> None:
    failures = iter([True, True, False])

    def fail_twice() -> None:
        if next(failures):
            raise ValueError("not yet")

    run = sold(step)
    async with shop.ledger.connect() as client, serves(shop, client, run, step):
        with during(fail_twice):
            assert await client.execute_workflow(run, *arguments(shop), id="o-1") == "o-1 is booked by attempt 3"
        log = await client.internals.store.read_attempts(1)
        assert [(each.attempt, each.outcome) for each in log] == [(1, "failed"), (2, "failed")]
    assert shop.orders() == ["o-1"]


@BOTH
async def test_many_runs_share_the_connection(shop: Shop, step: Any) -> None:
    run = sold(step)
    async with shop.ledger.connect() as client, serves(shop, client, run, step):
        orders = [f"o-{number}" for number in range(10)]
        results = await asyncio.gather(
            *(client.execute_workflow(run, *arguments(shop, order), id=order) for order in orders)
        )
        assert results == [f"{order} is booked by attempt 1" for order in orders]
    assert shop.orders() == orders


@BOTH
async def test_a_result_that_cannot_be_kept_takes_its_effect_with_it(shop: Shop, step: Any) -> None:
    run = sold(step)
    async with shop.ledger.connect() as client, serves(shop, client, run, step, payload_bytes_max=200):
        said = await client.execute_workflow(run, *arguments(shop, "long"), id="o-1")
        assert said == "not sold: ApplicationError"
        assert [each.attempt for each in await client.internals.store.read_attempts(1)] == [1]  # and is not tried again
    assert shop.orders() == []


@BOTH
async def test_an_attempt_that_is_too_late_leaves_nothing(shop: Shop, step: Any) -> None:
    """Its time is over while it waits; the next one succeeds."""
    waits, goes_on = iter([True, False]), threading.Event()

    async def wait() -> None:
        if next(waits):
            await asyncio.sleep(30)

    def block() -> None:
        if next(waits):
            goes_on.wait(3)

    options: dict[str, Any] = {"start_to_close_timeout": timedelta(milliseconds=200), "retry_policy": QUICK}
    short = activity.defn(name="book", transaction="shop", **options)(step.fn)
    run = sold(short)
    async with shop.ledger.connect() as client, serves(shop, client, run, short, max_transactions=2):
        with during(wait if step is on_the_loop else block):
            result = asyncio.create_task(client.execute_workflow(run, *arguments(shop), id="o-1"))
            assert await result == "o-1 is booked by attempt 2"
            goes_on.set()
            await until(lambda: client.internals.engines[0].activities.under_way.running == 0)
    assert shop.orders() == ["o-1"]


async def test_SAG_02_a_forward_action_that_commits_after_its_compensation_is_refused(postgres_shop: Shop) -> None:
    """The attempt was given up, and compensated: the commit checks the fence, and nothing of it is there."""
    shop = postgres_shop
    goes_on, done = threading.Event(), threading.Event()
    cancelled: list[str] = []

    def act() -> None:
        goes_on.wait(30)
        done.set()

    options: dict[str, Any] = {"start_to_close_timeout": timedelta(milliseconds=100), "retry_policy": ONCE}
    reserve = activity.defn(name="book", transaction="shop", **options)(book_plainly)

    @activity.defn(transaction="shop", retry_policy=QUICK)
    async def cancel(order: str, table: str) -> int:
        """Finds nothing to undo."""
        cursor = await activity.connection().execute(f"DELETE FROM {table} WHERE id = %s", (order,))
        cancelled.append(order)
        return int(cursor.rowcount)

    @workflow.defn
    async def trip(order: str, table: str, mark: str) -> str:
        try:
            return await reserve(order, table, mark)
        except ActivityError as error:
            undone = await cancel(order, table)
            return f"{type(error.__cause__).__name__}, {undone} undone"

    async with shop.ledger.connect() as client, serves(shop, client, trip, reserve, cancel, max_transactions=2):
        with during(act):
            handle = await client.start_workflow(trip, *arguments(shop), id="o-1")
            assert await handle.result() == "TimeoutError, 0 undone"
            assert cancelled == ["o-1"]
            goes_on.set()
            await asyncio.to_thread(done.wait, 30)
            await until(lambda: client.internals.engines[0].activities.admission.slots.has_room("book"))
        # One outcome is shown, and what came late is in the log of attempts.
        run_key = (await client.internals.store.find_run("default", "o-1")).run_key  # type: ignore[union-attr]
        log = await until(lambda: late(client, run_key))
        assert [(each.attempt, each.outcome) for each in log] == [(1, "timed_out"), (1, "late")]
    assert shop.orders() == []


async def late(client: Client, run_key: int) -> list[Any]:
    log = await client.internals.store.read_attempts(run_key)
    return log if any(each.outcome == "late" for each in log) else []


async def test_a_task_that_is_too_late_for_good_leaves_nothing(shop: Shop) -> None:
    tries = asyncio.Event()

    async def act() -> None:
        tries.set()
        await asyncio.sleep(30)

    options: dict[str, Any] = {"start_to_close_timeout": timedelta(milliseconds=100), "retry_policy": ONCE}
    short = activity.defn(name="book", transaction="shop", **options)(book)
    run = sold(short)
    async with shop.ledger.connect() as client, serves(shop, client, run, short):
        with during(act):
            assert await client.execute_workflow(run, *arguments(shop), id="o-1") == "not sold: TimeoutError"
    assert tries.is_set()
    assert shop.orders() == []


async def test_an_attempt_of_a_lost_lease_leaves_nothing(shop: Shop) -> None:
    """The worker is frozen in the transaction's midst; another one takes over, does it, and is the only one."""
    goes_on = threading.Event()
    began: list[int] = []

    def act() -> None:
        began.append(activity.info().attempt)
        if len(began) == 1:
            goes_on.wait(3)

    run = sold(in_a_thread)
    with during(act), worker_process(shop.ledger, run, in_a_thread, transactions={"shop": None}, lease=LEASE) as frozen:
        frozen.call(frozen.client.start_workflow(run, *arguments(shop), id="o-1"))
        await until(lambda: began)
        frozen.freeze()
        if not shop.is_postgres:
            # It holds the file's write lock, which no other process can take from it: its own statement ends it.
            goes_on.set()
        async with shop.ledger.connect() as client, serves(shop, client, run, in_a_thread):
            handle = client.handle("o-1", workflow=run)
            assert await handle.result() in ("o-1 is booked by attempt 1", "o-1 is booked by attempt 2")
            goes_on.set()
            frozen.thaw()
            history = await handle.history()
            assert _completions(history) == 1
    assert shop.orders() == ["o-1"]


async def test_the_end_of_the_run_takes_the_effect_with_it(shop: Shop) -> None:
    began = asyncio.Event()

    async def act() -> None:
        began.set()
        if shop.is_postgres:  # on SQLite nobody ends anything meanwhile
            await ended.wait()

    ended = asyncio.Event()
    run = sold(on_the_loop)
    async with shop.ledger.connect() as client, serves(shop, client, run, on_the_loop):
        with during(act):
            handle = await client.start_workflow(run, *arguments(shop), id="o-1")
            await began.wait()
            await handle.terminate("nobody wants it")
            ended.set()
            await until(lambda: client.internals.engines[0].activities.under_way.running == 0)
        status = (await handle.describe()).summary.status
        history = await handle.history()
    completed = _completions(history)
    assert status == "terminated"
    if shop.is_postgres:
        assert not completed
        assert shop.orders() == []


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("policy", [QUICK, ONCE], ids=["again", "once"])
async def test_a_lost_answer_of_the_commit_is_settled_by_the_row(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, committed: bool, policy: RetryPolicy
) -> None:
    lost = []

    def losing(store: Any) -> None:
        made = store.transaction

        def transaction(*args: Any, **options: Any) -> Any:
            transaction = made(*args, **options)
            finish = transaction.finish

            async def finish_and_lose(op: Any) -> Reply:
                if lost:
                    return await finish(op)
                lost.append(True)
                if committed:
                    assert await finish(op) is Reply.WON
                raise StoreUnavailableError("simulated: the answer was lost")

            transaction.finish = finish_and_lose
            return transaction

        monkeypatch.setattr(store, "transaction", transaction)

    step = activity.defn(name="book", transaction="shop", retry_policy=policy)(book)
    run = sold(step)
    async with shop.ledger.connect() as client, serves(shop, client, run, step):
        losing(client.internals.store)
        result = await client.execute_workflow(run, *arguments(shop), id="o-1")
    if committed:
        assert result == "o-1 is booked by attempt 1"
    else:
        assert result == ("o-1 is booked by attempt 2" if policy is QUICK else "not sold: ApplicationError")
    assert shop.orders() == (["o-1"] if result.startswith("o-1") else [])


async def test_a_broken_constraint_is_a_failure_like_any_other(shop: Shop) -> None:
    run = sold(on_the_loop)
    async with shop.ledger.connect() as client, serves(shop, client, run, on_the_loop):
        await client.execute_workflow(run, *arguments(shop), id="o-1")
        again = await client.start_workflow(run, *arguments(shop), id="o-2")
        assert await again.result() == "not sold: ApplicationError"
        tasks = await client.internals.store.read_attempts(2)
        assert {each.outcome for each in tasks} == {"failed"}
    assert shop.orders() == ["o-1"]


@BOTH
async def test_a_step_whose_statement_has_ended_the_transaction_has_no_result(shop: Shop, step: Any) -> None:
    """Though it has caught the error: the result would stand without the effect."""

    def end() -> Any:
        connection = activity.connection()
        if step is on_the_loop:
            return end_on_the_loop(connection)
        with contextlib.suppress(apsw.ConstraintError, psycopg.errors.UniqueViolation):
            connection.execute(shop.ending("o-1"))
        return None

    async def end_on_the_loop(connection: Any) -> None:
        with contextlib.suppress(apsw.ConstraintError, psycopg.errors.UniqueViolation):
            await connection.execute(shop.ending("o-1"))

    run = sold(step)
    async with shop.ledger.connect() as client, serves(shop, client, run, step):
        await client.execute_workflow(run, *arguments(shop), id="o-1")
        with during(end, "o-2"):
            assert await client.execute_workflow(run, *arguments(shop, "o-2"), id="o-2") == "not sold: ApplicationError"
        (failed, *_) = await client.internals.store.read_attempts(2)
        assert failed.outcome == "failed"
        assert b"UsageError" in (failed.failure or b"")
    assert shop.orders() == ["o-1"]


# What cannot be -------------------------------------------------------------------------------------------------------


async def test_a_worker_that_does_not_know_the_transaction_says_so(shop: Shop) -> None:
    async with shop.ledger.connect() as client:
        with pytest.raises(UsageError, match=r"'book' runs in the transaction 'shop', and this worker knows 'other'"):
            Worker(client, activities=[on_the_loop], transactions={"other": None})
        with pytest.raises(InvalidPolicyError, match="max_transactions=0"):
            Worker(client, activities=[on_the_loop], transactions={"shop": None}, max_transactions=0)


async def test_a_transaction_elsewhere_is_refused_at_the_start(shop: Shop) -> None:
    elsewhere = "postgresql://postgres@127.0.0.1:1/x" if shop.is_postgres else "sqlite:///elsewhere.db"
    error: type[Exception] = StoreUnavailableError if shop.is_postgres else UsageError
    async with shop.ledger.connect() as client:
        worker = Worker(client, activities=[on_the_loop], transactions={"shop": elsewhere})
        with pytest.raises(error):
            async with worker:
                pass
        assert await client.workers() == ()


async def test_as_another_user_of_the_same_database(postgres_shop: Shop) -> None:
    shop = postgres_shop
    role = f"{shop.table}_clerk"
    with servers.role(role) as as_role:
        servers.admin(f"GRANT {servers.user_of(shop.conninfo)} TO {role}")
        run = sold(on_the_loop)
        async with shop.ledger.connect() as client:
            options = {"transactions": {"shop": as_role(shop.conninfo)}}
            async with shop.ledger.worker(client, run, on_the_loop, **options):
                with during(lambda: None):
                    await client.execute_workflow(run, *arguments(shop), id="o-1")
                users = "SELECT usename FROM pg_stat_activity WHERE application_name = 'pledger transaction'"
                assert (role,) in servers.admin(users)
                ledger = await client.ledger()
                assert ledger["connections"] <= ledger["connections_max"] == 4
    assert shop.orders() == ["o-1"]


def test_a_process_of_its_own_is_handed_no_transaction() -> None:
    with pytest.raises(UsageError, match="cannot be handed to a process of its own"):
        activity.defn(transaction="shop", executor="process")(book_plainly)


async def test_outside_of_a_transaction_there_is_no_connection(shop: Shop) -> None:
    asked = []

    @activity.defn
    async def plain() -> None:
        try:
            activity.connection()
        except UsageError as error:
            asked.append(str(error))

    @workflow.defn
    async def asks() -> None:
        await plain()

    async with shop.ledger.connect() as client, shop.ledger.worker(client, asks, plain):
        await client.execute_workflow(asks, id="asks")
    assert asked == ["activity 'plain' has no transaction: define it with @activity.defn(transaction=...)"]
    with pytest.raises(UsageError, match="works only in an activity"):
        activity.connection()


def test_in_memory_the_step_fails_and_says_why() -> None:
    run = sold(on_the_loop)
    with environment(workflows=[run], activities=[on_the_loop]) as env:
        assert env.execute_workflow(run, "o-1", "t", "?", id="o-1") == "not sold: ApplicationError"
