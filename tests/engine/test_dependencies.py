"""Retry budgets and circuit breakers: whole workers, several of them."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from pledger import CircuitBreaker, RetryBudget, RetryPolicy, Worker, activity, connect, workflow
from pledger.client import Client, DependencySummary
from pledger.errors import ActivityError, ApplicationError, ApplicationErrorCategory, InvalidPolicyError, UsageError
from pledger.history.budget import BudgetRule
from tests.engine.harness import Ledger, until, worker_process

AT_ONCE = RetryPolicy(initial_interval=timedelta(0), maximum_attempts=0)
#: A window that no test outlives, so that what is counted stays; pauses that no test waits for in earnest.
BREAKER = CircuitBreaker(minimum_calls=4, pause=timedelta(milliseconds=50), maximum_pause=timedelta(milliseconds=100))
LONG = timedelta(hours=1)
#: A breaker that stays open.
SHUT = CircuitBreaker(minimum_calls=4, pause=LONG, maximum_pause=LONG)


class Bank:
    """It works, or it does not. began: how often each of its customers has asked."""

    def __init__(self, *, works: bool = False) -> None:
        self.works = works
        self.began: Counter[int] = Counter()
        self.lock = threading.Lock()

    def ask(self, number: int) -> int:
        with self.lock:
            self.began[number] += 1
        if not self.works:
            raise ConnectionError("refused")
        return number

    @property
    def asked(self) -> int:
        return self.began.total()


async def dependency(client: Client, name: str = "bank") -> DependencySummary:
    return next(each for each in await client.dependencies() if each.name == name)


def is_(client: Client, phase: str) -> Any:
    async def holds() -> bool:
        return (await dependency(client)).phase == phase

    return holds


# Budgets --------------------------------------------------------------------------------------------------------------


async def test_retries_wait_for_their_budget_and_lose_no_attempt(ledger: Ledger) -> None:
    bank = Bank()

    @activity.defn(
        retry_budget=RetryBudget("bank", ratio=0, minimum_per_second=0.001, breaker=None), retry_policy=AT_ONCE
    )
    async def pay(number: int) -> int:
        return bank.ask(number)

    @workflow.defn
    async def order() -> int:
        return sum(await asyncio.gather(*(pay(n) for n in range(5))))

    async with ledger.connect() as client, ledger.worker(client, order, pay):
        handle = await client.start_workflow(order, id="o-1")

        async def all_wait() -> bool:
            pending = (await handle.describe()).pending
            return sorted((row.state, row.attempt) for row in pending) == [*[("queued", 2)] * 4, ("queued", 3)]

        await until(all_wait)
        assert bank.asked == 6
        found = await dependency(client)
        assert (found.phase, found.retries, found.retries_left) == ("closed", 1, 0)
        await handle.terminate()


async def test_the_budget_is_one_for_all_workers_and_activities(ledger: Ledger) -> None:
    bank = Bank()
    budget = RetryBudget("bank", ratio=0, minimum_per_second=0.001, breaker=None)

    @activity.defn(retry_budget=budget, retry_policy=AT_ONCE)
    async def pay(number: int) -> int:
        return bank.ask(number)

    @activity.defn(retry_budget=budget, retry_policy=AT_ONCE)
    async def refund(number: int) -> int:
        return bank.ask(-number)

    @workflow.defn
    async def order(number: int) -> int:
        return sum(await asyncio.gather(pay(number), refund(number)))

    with worker_process(ledger, order, pay, refund), worker_process(ledger, order, pay, refund):
        async with ledger.connect() as client:
            handles = [await client.start_workflow(order, n, id=f"o-{n}") for n in range(1, 4)]
            await until(lambda: bank.asked >= 7)

            async def all_wait() -> bool:
                described = [await each.describe() for each in handles]
                return sum(row.state == "queued" for each in described for row in each.pending) == 6

            await until(all_wait)
            assert bank.asked == 7
            for handle in handles:
                await handle.terminate()


async def test_what_waits_for_its_budget_ends_with_its_deadline(ledger: Ledger) -> None:
    bank = Bank()

    @activity.defn(
        retry_budget=RetryBudget("bank", ratio=0, minimum_per_second=0.001, breaker=None),
        retry_policy=AT_ONCE,
        schedule_to_close_timeout=timedelta(milliseconds=300),
    )
    async def pay(number: int) -> int:
        return bank.ask(number)

    @workflow.defn
    async def order() -> list[str]:
        found = await asyncio.gather(*(pay(n) for n in range(3)), return_exceptions=True)
        return [each.retry_state for each in found if isinstance(each, ActivityError)]

    async with ledger.connect() as client, ledger.worker(client, order, pay):
        assert await client.execute_workflow(order, id="o-1") == ["timeout"] * 3
    assert bank.asked == 4


async def test_calls_that_go_well_pay_for_retries(ledger: Ledger) -> None:
    bank = Bank(works=True)

    @activity.defn(
        retry_budget=RetryBudget("bank", ratio=1, minimum_per_second=0.001, breaker=None), retry_policy=AT_ONCE
    )
    async def pay(number: int) -> int:
        if number % 2 and bank.began[number] == 0:
            bank.began[number] += 1
            raise ConnectionError("refused")
        return bank.ask(number)

    @workflow.defn
    async def order() -> int:
        return sum(await asyncio.gather(*(pay(n) for n in range(20))))

    async with ledger.connect() as client, ledger.worker(client, order, pay):
        assert await client.execute_workflow(order, id="o-1") == 190
        await until(lambda: _has(client, retries=10, calls=20))


async def _has(client: Client, **counts: int) -> bool:
    found = await dependency(client)
    return all(getattr(found, name) == count for name, count in counts.items())


# The breaker ----------------------------------------------------------------------------------------------------------


async def test_it_opens_and_all_goes_on_once_the_dependency_works(ledger: Ledger) -> None:
    bank = Bank()

    @activity.defn(retry_budget=RetryBudget("bank", minimum_per_second=1_000, breaker=BREAKER), retry_policy=AT_ONCE)
    async def pay(number: int) -> int:
        return bank.ask(number)

    @workflow.defn
    async def order(number: int) -> int:
        return await pay(number)

    with worker_process(ledger, order, pay), worker_process(ledger, order, pay):
        async with ledger.connect() as client:
            handles = [await client.start_workflow(order, n, id=f"o-{n}") for n in range(20)]
            await until(is_(client, "open"))
            late = await client.start_workflow(order, 99, id="late")
            bank.works = True
            assert [await each.result() for each in handles] == list(range(20))
            assert await late.result() == 99
            phases = [each.phase for each in (await dependency(client)).changes]
            assert phases[:2] == ["open", "half_open"]


async def test_while_it_is_open_nothing_begins(ledger: Ledger) -> None:
    bank = Bank()

    @activity.defn(retry_budget=RetryBudget("bank", minimum_per_second=1_000, breaker=SHUT), retry_policy=AT_ONCE)
    async def pay(number: int) -> int:
        return bank.ask(number)

    @activity.defn
    async def pack(number: int) -> int:
        return number

    @workflow.defn
    async def order(number: int) -> int:
        return await pay(await pack(number))

    with worker_process(ledger, order, pay, pack), worker_process(ledger, order, pay, pack):
        async with ledger.connect() as client:
            handles = [await client.start_workflow(order, n, id=f"o-{n}") for n in range(6)]
            await until(is_(client, "open"))
            handles += [await client.start_workflow(order, n, id=f"o-{n}") for n in range(6, 12)]

            async def all_wait() -> bool:
                described = [await each.describe() for each in handles]
                return all(each.dependencies and each.pending[0].lane is not None for each in described)

            await until(all_wait)
            before = bank.asked
            bank.works = True
            extra = await client.start_workflow(order, 12, id="o-12")
            await until(lambda: _is_held(extra))
            assert bank.asked == before
            [found] = (await extra.describe()).dependencies.values()
            assert (found.name, found.phase, found.last_failure) == ("bank", "open", "ConnectionError: refused")
            resumed = await client.resume_dependency("bank", reason="it is back", by="ada")
            assert (resumed.phase, resumed.by, resumed.reason) == ("half_open", "ada", "it is back")
            assert [await each.result() for each in [*handles, extra]] == list(range(13))


async def _is_held(handle: Any) -> bool:
    return bool((await handle.describe()).dependencies)


async def test_an_answer_is_an_answer(ledger: Ledger) -> None:
    """A declared failure says that the dependency works."""

    @activity.defn(
        retry_budget=RetryBudget("bank", breaker=SHUT),
        retry_policy=RetryPolicy(non_retryable_error_types=["CardDeclined"], maximum_attempts=1),
    )
    async def pay(number: int) -> int:
        if number % 3 == 1:
            raise ApplicationError("no such account", non_retryable=True)
        if number % 3 == 2:
            raise ApplicationError("not yet", category=ApplicationErrorCategory.BENIGN)
        raise ApplicationError("declined", type="CardDeclined")

    @workflow.defn
    async def order() -> int:
        return len(await asyncio.gather(*(pay(n) for n in range(8)), return_exceptions=True))

    async with ledger.connect() as client, ledger.worker(client, order, pay):
        assert await client.execute_workflow(order, id="o-1") == 8
        await until(lambda: _has(client, succeeded=8, failed=0))
        assert (await dependency(client)).phase == "closed"


async def test_time_outs_count_and_cancellations_do_not(ledger: Ledger) -> None:
    @activity.defn(
        retry_budget=RetryBudget("bank", breaker=SHUT),
        retry_policy=RetryPolicy(maximum_attempts=1),
    )
    async def pay() -> None:
        await asyncio.sleep(3600)

    @workflow.defn
    async def order() -> None:
        timeout = timedelta(milliseconds=30)
        slow = workflow.start_activity(pay, start_to_close_timeout=timeout)
        silent = workflow.start_activity(pay, heartbeat_timeout=timeout)
        stopped = workflow.start_activity(pay)
        await asyncio.gather(slow, silent, return_exceptions=True)
        stopped.cancel()
        await asyncio.gather(stopped, return_exceptions=True)
        await asyncio.sleep(0.01)

    async with ledger.connect() as client, ledger.worker(client, order, pay):
        await client.execute_workflow(order, id="o-1")
        await until(lambda: _has(client, calls=3, failed=2))
        assert (await dependency(client)).succeeded == 0


# Operators ------------------------------------------------------------------------------------------------------------


async def test_what_is_paused_waits_and_says_why(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    # What this worker knows is older than the pause. So it asks.
    monkeypatch.setattr("pledger.engine.budgets.FRESH_S", 0.0)
    bank = Bank(works=True)

    @activity.defn(retry_budget=RetryBudget("bank"))
    async def pay(number: int) -> int:
        return bank.ask(number)

    @workflow.defn
    async def order(number: int) -> int:
        return await pay(number)

    async with ledger.connect() as client, ledger.worker(client, order, pay):
        assert await client.execute_workflow(order, 1, id="o-1") == 1
        paused = await client.pause_dependency("bank", reason="it is being moved", by="ada")
        assert (paused.phase, paused.reason, paused.by) == ("paused", "it is being moved", "ada")
        handles = [await client.start_workflow(order, n, id=f"o-{n}") for n in range(2, 6)]
        for handle in handles:
            await until(lambda handle=handle: _is_held(handle))
            [held_by] = (await handle.describe()).dependencies.values()
            assert (held_by.name, held_by.reason, held_by.by) == ("bank", "it is being moved", "ada")
        assert bank.asked == 1
        assert (await client.resume_dependency("bank")).phase == "half_open"
        assert [await each.result() for each in handles] == [2, 3, 4, 5]
        changes = (await dependency(client)).changes
        assert [(each.phase, each.by) for each in changes][:1] == [("paused", "ada")]


async def test_a_dependency_that_nobody_has_stated_cannot_be_paused(ledger: Ledger) -> None:
    async with ledger.connect() as client:
        with pytest.raises(UsageError, match=r"has stated a dependency 'bnak'; known here: none"):
            await client.pause_dependency("bnak")
        with pytest.raises(UsageError, match="has stated a dependency 'bnak'"):
            await client.resume_dependency("bnak")
        assert await client.dependencies() == ()


# Statements -----------------------------------------------------------------------------------------------------------


async def test_one_name_has_one_set_of_numbers() -> None:
    @activity.defn(retry_budget=RetryBudget("bank", ratio=0.1))
    async def pay() -> None: ...

    @activity.defn(retry_budget=RetryBudget("bank", ratio=0.2))
    async def refund() -> None: ...

    async with connect("memory://") as client:
        with pytest.raises(
            UsageError, match=r"'pay' and activity 'refund' state the retry budget 'bank' .*: ratio 0.1 and 0.2\. "
        ):
            Worker(client, activities=[pay, refund])


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: RetryBudget(""),
        lambda: RetryBudget("bank\n"),
        lambda: RetryBudget("bank", ratio=-0.1),
        lambda: RetryBudget("bank", ratio=float("nan")),
        lambda: RetryBudget("bank", minimum_per_second=0),
        lambda: RetryBudget("bank", minimum_per_second=float("inf")),
        lambda: RetryBudget("bank", window=timedelta(milliseconds=999)),
        lambda: CircuitBreaker(failure_ratio=0),
        lambda: CircuitBreaker(failure_ratio=1.1),
        lambda: CircuitBreaker(minimum_calls=0),
        lambda: CircuitBreaker(pause=timedelta(0)),
        lambda: CircuitBreaker(pause=timedelta(minutes=6)),
    ],
)
def test_numbers_out_of_range(wrong: Any) -> None:
    with pytest.raises(InvalidPolicyError):
        wrong()


def test_the_numbers_of_the_code_are_those_of_the_row() -> None:
    assert RetryBudget("bank").rule() == BudgetRule()
    assert RetryBudget("bank", breaker=None).rule() == BudgetRule(failure_ratio=None)
