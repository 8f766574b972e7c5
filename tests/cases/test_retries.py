"""The cases about retries, by the numbers that they have: hours pass in virtual time."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from pledger import RetryPolicy, activity, errors, workflow
from pledger.testing import Environment
from tests.cases.harness import BEGAN
from tests.engine.harness import Ledger, until, worker_process

Virtual = Callable[..., Environment]


def seconds(*each: float) -> list[timedelta]:
    return [timedelta(seconds=one) for one in each]


class Attempts:
    """An activity that says when its attempts began, and a workflow of that one step.

    act: what an attempt does, by its number; by default it raises.
    """

    def __init__(self, act: Callable[[int], Any] | None = None, **options: Any) -> None:
        self.began: list[timedelta] = []
        self.env: Environment

        @activity.defn(**options)
        async def flaky() -> Any:
            self.began.append(self.env.now() - BEGAN)
            return await (act or quota)(activity.info().attempt)

        @workflow.defn
        async def one_step() -> Any:
            return await flaky()

        self.activity, self.workflow = flaky, one_step

    @property
    def waits(self) -> list[timedelta]:
        return [later - earlier for earlier, later in itertools.pairwise(self.began)]

    def failure(self, virtual: Virtual) -> errors.ActivityError:
        """Run it in virtual time; what it fails with."""
        self.env = virtual(workflows=[self.workflow], activities=[self.activity], now=BEGAN)
        with pytest.raises(errors.WorkflowFailedError) as caught:
            self.env.run(self.workflow, id="order-1")
        assert caught.value.status == "failed"
        error = caught.value.__cause__
        assert isinstance(error, errors.ActivityError)
        return error


async def quota(attempt: int) -> None:
    raise errors.ApplicationError("quota", {"left": attempt}, type="Quota")


async def hang() -> None:
    await asyncio.Event().wait()


def left(error: BaseException | None) -> int:
    """Of which attempt this error is."""
    assert isinstance(error, errors.ApplicationError)
    assert error.type == "Quota"
    [details] = error.details
    return int(details["left"])


# RTY-01 ---------------------------------------------------------------------------------------------------------------


def test_RTY_01_a_cap_survives_a_thousand_retries(virtual: Virtual) -> None:
    case = Attempts(
        retry_policy=RetryPolicy(
            initial_interval=timedelta(seconds=300),
            backoff_coefficient=2.0,
            maximum_interval=timedelta(seconds=3600),
            maximum_attempts=1001,
            jitter=0.0,
        )
    )
    error = case.failure(virtual)
    assert [round(wait.total_seconds(), 2) for wait in case.waits] == [300, 600, 1200, 2400] + [3600] * 996
    # The last error of the last attempt; there is no other one after it, however long one waits.
    assert (error.attempt, error.retry_state, left(error.__cause__)) == (1001, "maximum_attempts", 1001)
    case.env.sleep(timedelta(days=1))
    assert len(case.began) == 1001


@pytest.mark.parametrize(("base_s", "factor", "cap_s", "passed"), [(10, 2.0, 300, 6), (1, 100.0, 5, 2)])
def test_RTY_01_other_policies_stay_at_their_cap(
    virtual: Virtual, base_s: int, factor: float, cap_s: int, passed: int
) -> None:
    """Sixty attempts of each; tests/unit/history/test_retry.py has those of any number."""
    case = Attempts(
        retry_policy=RetryPolicy(
            initial_interval=timedelta(seconds=base_s),
            backoff_coefficient=factor,
            maximum_interval=timedelta(seconds=cap_s),
            maximum_attempts=61,
            jitter=0.0,
        )
    )
    case.failure(virtual)
    assert {round(wait.total_seconds(), 2) for wait in case.waits[passed:]} == {cap_s}
    assert len(case.waits) == 60


# RTY-02 ---------------------------------------------------------------------------------------------------------------


def test_RTY_02_a_base_of_zero_retries_at_once_and_harms_nobody(virtual: Virtual) -> None:
    case = Attempts(
        retry_policy=RetryPolicy(initial_interval=timedelta(0), backoff_coefficient=2.0, maximum_attempts=4, jitter=1.0)
    )
    assert left(case.failure(virtual).__cause__) == 4
    assert len(case.began) == 4
    # To the microsecond of a jump of virtual time.
    assert [round(wait.total_seconds(), 3) for wait in case.waits] == [0, 0, 0]
    # Other work is served as before, by the same engine.
    case.env.fake(case.activity, lambda: "served")
    assert case.env.run(case.workflow, id="order-2") == "served"


# RTY-04 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("maximum", [timedelta(seconds=3600), None], ids=["with a maximum", "without"])
def test_RTY_04_a_large_maximum_leaves_the_first_waits_alone(virtual: Virtual, maximum: timedelta | None) -> None:
    """Without one the ceiling is a hundred times the first interval, a documented default: see `waiting.toml`."""
    case = Attempts(
        schedule_to_close_timeout=timedelta(hours=24),
        schedule_to_start_timeout=timedelta(minutes=5),
        start_to_close_timeout=timedelta(hours=24),
        retry_policy=RetryPolicy(
            initial_interval=timedelta(milliseconds=200),
            backoff_coefficient=2,
            maximum_interval=maximum,
            maximum_attempts=10,
            jitter=0.0,
        ),
    )
    case.failure(virtual)
    nine = [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2]
    if maximum is None:
        nine[-2:] = [20.0, 20.0]
    assert [round(wait.total_seconds(), 2) for wait in case.waits] == nine
    assert max(case.waits) < timedelta(seconds=3600)
    if maximum is not None:
        assert round((case.began[-1] - case.began[0]).total_seconds()) == 102


def test_RTY_04_jitter_only_shortens_the_waits(virtual: Virtual) -> None:
    case = Attempts(
        retry_policy=RetryPolicy(
            initial_interval=timedelta(milliseconds=200),
            backoff_coefficient=2,
            maximum_interval=timedelta(seconds=3600),
            maximum_attempts=10,
        )
    )
    case.failure(virtual)
    for wait, nominal in zip(case.waits, seconds(0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2), strict=True):
        assert wait <= nominal + timedelta(milliseconds=5)


# RTY-05 ---------------------------------------------------------------------------------------------------------------


def in_ten_seconds(act: Callable[[int], Any], **policy: Any) -> Attempts:
    return Attempts(
        act,
        schedule_to_close_timeout=timedelta(seconds=10),
        start_to_close_timeout=timedelta(seconds=2),
        retry_policy=RetryPolicy(
            initial_interval=timedelta(seconds=1), backoff_coefficient=2, jitter=0.0, maximum_attempts=0, **policy
        ),
    )


def hangs_from(first: int) -> Callable[[int], Any]:
    async def act(attempt: int) -> None:
        if attempt >= first:
            await hang()
        await quota(attempt)

    return act


def timeouts(error: errors.ActivityError) -> tuple[list[str], BaseException | None]:
    """The kinds of the time-outs on top of the chain of causes, and what is behind them."""
    kinds, cause = [], error.__cause__
    while isinstance(cause, errors.TimeoutError):
        kinds.append(cause.kind)
        cause = cause.__cause__
    return kinds, cause


def test_RTY_05_a_next_attempt_that_would_miss_the_deadline(virtual: Virtual) -> None:
    case = in_ten_seconds(quota)
    error = case.failure(virtual)
    # At 0, 1, 3 and 7 s; the next one would be at 15.
    assert [round(each.total_seconds(), 2) for each in case.began] == [0, 1, 3, 7]
    kinds, cause = timeouts(error)
    assert (error.retry_state, kinds, left(cause)) == ("timeout", ["schedule_to_close"], 4)


def test_RTY_05_the_deadline_passes_while_an_attempt_runs(virtual: Virtual) -> None:
    """The same shape. The attempts are at 0, 1, 3, 5, 7 and 9 s; the last one hangs."""
    case = in_ten_seconds(hangs_from(6), maximum_interval=timedelta(seconds=2))
    error = case.failure(virtual)
    assert len(case.began) == 6
    kinds, cause = timeouts(error)
    assert (error.retry_state, kinds, left(cause)) == ("timeout", ["schedule_to_close"], 5)


def test_RTY_05_the_last_attempt_hangs_until_its_own_time_out(virtual: Virtual) -> None:
    case = in_ten_seconds(hangs_from(4))
    error = case.failure(virtual)
    kinds, cause = timeouts(error)
    # The newest real error stays in the chain, behind both.
    assert (error.retry_state, kinds, left(cause)) == ("timeout", ["schedule_to_close", "start_to_close"], 3)


# RTY-08 ---------------------------------------------------------------------------------------------------------------


async def test_RTY_08_the_deadline_counts_from_each_attempt_also_after_a_lost_worker(ledger: Ledger) -> None:
    """The worker of the first attempt stops in the middle of it and the second one is made by another, later."""
    seen: dict[int, tuple[datetime, datetime, timedelta, datetime | None]] = {}
    hold = threading.Event()

    @activity.defn(
        start_to_close_timeout=timedelta(seconds=60),
        schedule_to_close_timeout=timedelta(hours=1),
        retry_policy=RetryPolicy(maximum_attempts=2, initial_interval=timedelta(0)),
    )
    async def look() -> None:
        info = activity.info()
        assert info.deadline is not None
        time_left = info.time_left
        assert time_left is not None
        # What a client would take as its own time-out; by the ledger's clock, as the start.
        assert time_left <= info.deadline - info.started_time
        seen[info.attempt] = (info.started_time, info.deadline, time_left, info.schedule_to_close_deadline)
        if info.attempt == 1:
            await until(hold.is_set)

    @workflow.defn
    async def one_step() -> None:
        await look()

    async with ledger.connect() as client:
        handle = await client.start_workflow(one_step, id="order-1")
        with worker_process(ledger, one_step, look) as first:
            await until(lambda: 1 in seen)
            first.freeze()
            with worker_process(ledger, one_step, look):
                await handle.result()
            hold.set()
    (first_start, first_deadline, _, whole), (second_start, second_deadline, time_left, same) = seen[1], seen[2]
    minute = timedelta(seconds=60)
    assert second_start > first_start
    assert (first_deadline - first_start, second_deadline - second_start) == (minute, minute)
    assert timedelta(0) < time_left <= minute
    # The overall one is told apart and stays where it is.
    assert whole is not None
    assert whole == same > second_deadline


def test_RTY_08_the_overall_deadline_caps_an_attempts_own(virtual: Virtual) -> None:
    seen: list[tuple[datetime | None, datetime | None]] = []

    async def look(attempt: int) -> None:
        seen.append((activity.info().deadline, activity.info().schedule_to_close_deadline))
        await quota(attempt)

    case = Attempts(
        look,
        start_to_close_timeout=timedelta(seconds=60),
        schedule_to_close_timeout=timedelta(seconds=330),
        retry_policy=RetryPolicy(initial_interval=timedelta(seconds=300), maximum_attempts=2, jitter=0.0),
    )
    case.failure(virtual)
    whole = BEGAN + timedelta(seconds=330)
    first, second = seen
    assert first == (BEGAN + timedelta(seconds=60), whole)
    # Born at 300 s, it would have until 360.
    assert second == (whole, whole)
