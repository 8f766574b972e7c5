from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from pledger import Limit, RetryPolicy, activity, errors, workflow
from pledger.testing import (
    Environment,
    EnvironmentFailedError,
    JumpingLoop,
    TimeStandsStillError,
    environment,
)

pytest_plugins = ["pytester"]

PledgerEnv = Callable[..., Environment]
BEGAN = datetime(2026, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)


@activity.defn
async def send_mail(to: str) -> str:
    return f"sent to {to}"


@workflow.defn
async def remind(to: str) -> str:
    await workflow.sleep(30 * DAY)
    return await send_mail(to)


@workflow.defn
class Order:
    def __init__(self) -> None:
        self.state = "new"

    @workflow.run
    async def run(self) -> str:
        try:
            await workflow.wait_condition(lambda: self.state == "paid", timeout=timedelta(days=14))
        except TimeoutError:
            return "expired"
        except asyncio.CancelledError:
            await workflow.sleep(timedelta(hours=1))
            await send_mail("the customer")
            raise
        return "paid"

    @workflow.signal
    def pay(self) -> None:
        self.state = "paid"

    @workflow.query
    def now_is(self) -> str:
        return self.state


# Time -----------------------------------------------------------------------------------------------------------------


def test_a_month_passes_for_the_workflow_alone(pledger_env: PledgerEnv) -> None:
    env = pledger_env(workflows=[remind], activities=[send_mail], now=BEGAN)
    assert env.run(remind, "ann") == "sent to ann"
    assert env.now() == BEGAN + 30 * DAY


def test_a_month_is_a_few_jumps(monkeypatch: pytest.MonkeyPatch, pledger_env: PledgerEnv) -> None:
    """The engine looks around every second; two million looks would be a slow month."""
    jumps: list[float] = []
    jump = JumpingLoop.jump
    monkeypatch.setattr(JumpingLoop, "jump", lambda self, to_s: (jumps.append(to_s), jump(self, to_s)))
    pledger_env(workflows=[remind], activities=[send_mail]).run(remind, "ann")
    assert len(jumps) < 5


def test_what_waits_for_a_limit_keeps_no_time_from_jumping(
    monkeypatch: pytest.MonkeyPatch, pledger_env: PledgerEnv
) -> None:
    jumps: list[float] = []
    jump = JumpingLoop.jump
    monkeypatch.setattr(JumpingLoop, "jump", lambda self, to_s: (jumps.append(to_s), jump(self, to_s)))

    @activity.defn(limits=[Limit("api", concurrency=1)])
    async def call(number: int) -> int:
        await asyncio.sleep(120)
        return number

    @workflow.defn
    async def calls() -> int:
        return sum(await asyncio.gather(*(call(n) for n in range(3))))

    env = pledger_env(workflows=[calls], activities=[call], now=BEGAN)
    assert env.run(calls) == 3
    assert timedelta(seconds=360) <= env.now() - BEGAN < timedelta(seconds=361)
    assert len(jumps) < 30


def test_time_stands_still_where_a_limit_lets_nothing_through(pledger_env: PledgerEnv) -> None:
    @activity.defn(limits=[Limit("api", concurrency=1)])
    async def call() -> str:
        return "called"

    @workflow.defn
    async def calls() -> str:
        return await call()

    env = pledger_env(workflows=[calls], activities=[call])
    env.set_limit("api", concurrency=0)
    handle = env.start(calls)
    with pytest.raises(TimeStandsStillError, match="waits for the activity 'call'"):
        handle.result()
    env.reset_limit("api")
    assert handle.result() == "called"


def test_time_begins_now_and_passes_only_by_waiting(pledger_env: PledgerEnv) -> None:
    env = pledger_env(workflows=[remind], activities=[send_mail])
    began = env.now()
    assert abs(datetime.now(UTC) - began) < timedelta(minutes=5)
    handle = env.start(remind, "ann")
    handle.describe()
    assert env.now() == began
    env.sleep(29 * DAY)
    assert env.now() == began + 29 * DAY
    assert handle.describe().summary.status == "running"
    env.sleep(1 * DAY)
    assert handle.describe().summary.status == "completed"
    assert env.now() == began + 30 * DAY


def test_time_needs_a_zone() -> None:
    with pytest.raises(errors.UsageError, match="time zone"):
        environment(workflows=[remind], now=datetime(2026, 3, 1))  # noqa: DTZ001 - that is the mistake


def test_runs_wake_in_the_order_of_their_times(pledger_env: PledgerEnv) -> None:
    woken: list[int] = []

    @activity.defn
    async def note(days: int) -> None:
        woken.append(days)

    @workflow.defn
    async def wake_after(days: int) -> None:
        await workflow.sleep(days * DAY)
        await note(days)

    env = pledger_env(workflows=[wake_after], activities=[note])
    handles = [env.start(wake_after, days) for days in (9, 3, 6)]
    for handle in handles:
        handle.result()
    assert woken == [3, 6, 9]


def test_runs_that_left_memory_are_woken_too(pledger_env: PledgerEnv) -> None:
    @workflow.defn
    async def wait_long(days: int) -> int:
        await workflow.sleep(days * DAY)
        return days

    env = pledger_env(workflows=[wait_long])
    handles = [env.start(wait_long, days) for days in range(1, 4)]
    engine = env.client.internals.engines[0]
    for run in list(engine.runs.active.values()):
        engine.runs.leaving.release(run)
    assert [handle.result() for handle in handles] == [1, 2, 3]


# Activities -----------------------------------------------------------------------------------------------------------


def test_retries_back_off_in_virtual_time(pledger_env: PledgerEnv) -> None:
    began: list[timedelta] = []
    policy = RetryPolicy(initial_interval=timedelta(minutes=1), maximum_interval=1 * DAY, jitter=0.0)

    @activity.defn(retry_policy=policy)
    async def flaky() -> int:
        began.append(env.now() - BEGAN)
        if len(began) < 4:
            raise ConnectionError("down")
        return activity.info().attempt

    @workflow.defn
    async def persist() -> int:
        return await flaky()

    env = pledger_env(workflows=[persist], activities=[flaky], now=BEGAN)
    assert env.run(persist) == 4
    assert [round(each / timedelta(minutes=1)) for each in began] == [0, 1, 3, 7]


def test_an_activity_times_out(pledger_env: PledgerEnv) -> None:
    @activity.defn(start_to_close_timeout=timedelta(hours=2), retry_policy=RetryPolicy(maximum_attempts=1))
    async def hang() -> None:
        await asyncio.sleep(1e6)

    @workflow.defn
    async def wait_for_it() -> None:
        await hang()

    env = pledger_env(workflows=[wait_for_it], activities=[hang], now=BEGAN)
    with pytest.raises(errors.WorkflowFailedError) as failed:
        env.run(wait_for_it)
    assert isinstance(failed.value.__cause__, errors.ActivityError)
    assert timedelta(hours=2) <= env.now() - BEGAN < timedelta(hours=3)


def test_a_plain_activity_holds_the_clock(pledger_env: PledgerEnv) -> None:
    threads: list[threading.Thread] = []

    @activity.defn
    def work() -> str:
        threads.append(threading.current_thread())
        time.sleep(0.02)  # for real: a thread at work is what this is about
        return "worked"

    @workflow.defn
    async def race() -> str:
        step = asyncio.ensure_future(work())
        late = asyncio.ensure_future(workflow.sleep(1 * DAY))
        await workflow.wait([step, late], return_when=asyncio.FIRST_COMPLETED)
        return step.result() if step.done() else "the clock ran on"

    env = pledger_env(workflows=[race], activities=[work], now=BEGAN)
    assert env.run(race) == "worked"
    assert env.now() == BEGAN
    assert threads[0] is not threading.main_thread()


def test_a_thread_that_only_a_time_out_ends_comes_to_its_end(
    monkeypatch: pytest.MonkeyPatch, pledger_env: PledgerEnv
) -> None:
    monkeypatch.setattr("pledger.testing.virtual_time.HELD_S", 0.05)

    @activity.defn(start_to_close_timeout=timedelta(seconds=0.1), retry_policy=RetryPolicy(maximum_attempts=1))
    def spin() -> None:
        while not activity.is_cancelled():
            time.sleep(0.005)  # for real, as above

    @workflow.defn
    async def wait_for_it() -> None:
        await spin()

    with pytest.raises(errors.WorkflowFailedError):
        pledger_env(workflows=[wait_for_it], activities=[spin]).run(wait_for_it)


def test_a_process_activity_runs_in_a_thread(pledger_env: PledgerEnv) -> None:
    @activity.defn(executor="process")
    def count() -> str:
        return threading.current_thread().name

    @workflow.defn
    async def ask() -> str:
        return await count()

    assert pledger_env(workflows=[ask], activities=[count]).run(ask).startswith("pledger-activity")


def test_more_activities_than_may_run_at_a_time_all_run(pledger_env: PledgerEnv) -> None:
    @activity.defn
    async def nap(number: int) -> int:
        await asyncio.sleep(60)
        return number

    @workflow.defn
    async def many() -> int:
        return sum(await asyncio.gather(*[nap(number) for number in range(1_100)]))

    assert pledger_env(workflows=[many], activities=[nap]).run(many) == sum(range(1_100))


# Fakes ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("named", [send_mail, "send_mail"])
def test_a_fake_stands_in_for_an_activity(pledger_env: PledgerEnv, named: object) -> None:
    env = pledger_env(workflows=[remind])
    env.fake(named, lambda to: f"not sent to {to}")  # type: ignore[arg-type] # either form is one of its types
    assert env.run(remind, "ann") == "not sent to ann"


def test_a_fake_may_be_async_and_may_be_changed(pledger_env: PledgerEnv) -> None:
    async def lose(_: str) -> str:
        await asyncio.sleep(5)
        raise errors.ApplicationError("no such address", type="Bounced", non_retryable=True)

    env = pledger_env(workflows=[remind], activities=[send_mail])
    assert env.run(remind, "ann") == "sent to ann"
    env.fake(send_mail, lose)
    with pytest.raises(errors.WorkflowFailedError):
        env.run(remind, "ann")


def test_a_plain_function_stands_in_by_its_name() -> None:
    def fake() -> Callable[[str], str]:
        def send_mail(to: str) -> str:
            return f"not sent to {to}"

        return send_mail

    with environment(workflows=[remind], activities=[send_mail, fake()]) as env:
        assert env.run(remind, "ann") == "not sent to ann"


# Messages -------------------------------------------------------------------------------------------------------------


def test_signals_and_queries_reach_a_run_while_time_stands(pledger_env: PledgerEnv) -> None:
    env = pledger_env(workflows=[Order], now=BEGAN)
    handle = env.start(Order, id="order-1")
    assert handle.query(Order.now_is) == "new"
    env.sleep(3 * DAY)
    handle.signal(Order.pay)
    assert handle.result() == "paid"
    assert env.now() == BEGAN + 3 * DAY


def test_without_a_signal_its_time_out_comes(pledger_env: PledgerEnv) -> None:
    assert pledger_env(workflows=[Order]).run(Order) == "expired"


def test_a_cancelled_run_cleans_up(pledger_env: PledgerEnv) -> None:
    env = pledger_env(workflows=[Order], activities=[send_mail], now=BEGAN)
    handle = env.start(Order)
    verdict = handle.cancel("changed their mind")
    with pytest.raises(errors.WorkflowFailedError) as failed:
        handle.result()
    assert failed.value.status == "cancelled"
    assert handle.cancel_verdict(verdict.request_id).verdict == "cancelled"
    assert env.now() == BEGAN + timedelta(hours=1)


def test_it_is_a_client_in_all_else(pledger_env: PledgerEnv) -> None:
    env = pledger_env(workflows=[Order])
    handle = env.start_workflow(Order, id="order-1")
    handle.terminate("enough")
    assert [run.status for run in env.list()] == ["terminated"]
    assert env.handle("order-1").history().events


# What must not pass silently ------------------------------------------------------------------------------------------


def test_a_wait_for_nothing_says_what_is_missing(pledger_env: PledgerEnv) -> None:
    @workflow.defn
    async def wait_for_ever() -> None:
        await workflow.wait_condition(lambda: False)

    env = pledger_env(workflows=[remind, wait_for_ever])
    env.start(wait_for_ever, id="idle")
    with pytest.raises(TimeStandsStillError) as stuck:
        env.run(remind, "ann", id="mail")
    assert "idle (wait_for_ever) waits for a signal" in str(stuck.value)
    assert "mail (remind) waits for the activity 'send_mail', which is not in activities=[...]" in str(stuck.value)
    env.fake(send_mail, lambda _: "after all")
    assert env.handle("mail").result() == "after all"


def nondeterministic() -> Callable[[], object]:
    times: list[int] = []

    @workflow.defn
    async def moody() -> None:
        times.append(1)
        await (workflow.sleep(1) if len(times) == 1 else send_mail("somebody"))
        await workflow.wait_condition(lambda: False)

    return moody


def test_an_open_run_that_does_not_replay_fails_the_test() -> None:
    moody = nondeterministic()
    with (
        pytest.raises(EnvironmentFailedError, match="StartTimer") as failed,
        environment(workflows=[moody], activities=[send_mail]) as env,
    ):
        env.start(moody, id="mood-1")
    assert "mood-1" in str(failed.value)
    assert "send_mail" in str(failed.value)


def buggy() -> Callable[[], object]:
    @workflow.defn
    async def divide() -> float:
        await workflow.sleep(1)
        return 1 / 0

    return divide


def leave_blocked(raised: Exception | None = None, *, allow_blocked: bool = False) -> None:
    divide = buggy()
    with environment(workflows=[divide], allow_blocked=allow_blocked) as env:
        env.start(divide)
        env.sleep(timedelta(seconds=2))
        if raised is not None:
            raise raised


def test_a_run_that_gives_other_values_on_replay_fails_the_test() -> None:
    seen: list[int] = []

    @workflow.defn
    async def counts() -> int:
        seen.append(1)  # a variable that no history holds
        await asyncio.sleep(len(seen))
        return len(seen)

    env = environment(workflows=[counts]).__enter__()
    assert env.run(counts) == 1
    with pytest.raises(EnvironmentFailedError, match="gives other values at event 2") as caught:
        env.__exit__(None, None, None)
    assert "recorded  StartTimer of 1 s\n  replayed  StartTimer of 2 s" in str(caught.value)


def test_a_blocked_run_fails_the_test_with_its_traceback() -> None:
    with pytest.raises(EnvironmentFailedError, match=r"return 1 / 0"):
        leave_blocked()


def test_a_blocked_run_that_the_test_has_heard_of_is_what_it_wants() -> None:
    divide = buggy()
    with environment(workflows=[divide]) as env, pytest.raises(errors.RunBlockedError, match="ZeroDivisionError"):
        env.run(divide)


def test_blocked_runs_may_be_allowed() -> None:
    leave_blocked(allow_blocked=True)


def test_the_error_of_a_test_comes_before_what_its_runs_have() -> None:
    with pytest.raises(LookupError, match="the test's own"):
        leave_blocked(LookupError("the test's own"))


def test_attempts_that_still_run_do_not_keep_it_open() -> None:
    @activity.defn
    async def hang() -> None:
        await asyncio.sleep(300)

    @workflow.defn
    async def wait_for_it() -> None:
        await hang()

    with environment(workflows=[wait_for_it], activities=[hang]) as env:
        env.start(wait_for_it)


# Async code -----------------------------------------------------------------------------------------------------------


def test_async_code_of_the_test_runs_in_virtual_time(pledger_env: PledgerEnv) -> None:
    env = pledger_env(workflows=[Order], now=BEGAN)

    async def pay_late() -> str:
        handle = await env.client.start_workflow(Order, id="order-1")
        await asyncio.sleep(13 * 86_400)
        await handle.signal(Order.pay)
        return await handle.result()  # type: ignore[no-any-return]

    assert env.run_until_complete(pay_late()) == "paid"
    assert env.now() == BEGAN + 13 * DAY


def test_an_async_test_runs_on_its_own_loop_in_real_time() -> None:
    async def pay() -> None:
        async with environment(workflows=[Order]) as env:
            handle = await env.client.start_workflow(Order, id="order-1")
            await handle.signal(Order.pay)
            assert await handle.result() == "paid"
            assert abs(datetime.now(UTC) - env.now()) < timedelta(minutes=5)

    asyncio.run(pay())


def test_a_blocked_run_fails_an_async_test() -> None:
    divide = buggy()

    async def leave_it() -> None:
        async with environment(workflows=[divide]) as env:
            await env.client.start_workflow(divide, id="division-1")
            await asyncio.sleep(2)

    with (
        asyncio.Runner(loop_factory=JumpingLoop) as runner,
        pytest.raises(EnvironmentFailedError, match="ZeroDivisionError"),
    ):
        runner.run(leave_it())


def test_on_a_jumping_loop_an_async_test_has_virtual_time() -> None:
    async def expire() -> None:
        async with environment(workflows=[Order], now=BEGAN) as env:
            assert await env.client.execute_workflow(Order, id="order-1") == "expired"
            assert env.now() == BEGAN + 14 * DAY

    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(expire())


def test_inside_of_a_loop_the_blocking_environment_says_what_to_do() -> None:
    async def misuse(env: Environment | None) -> None:
        if env is None:
            with environment(workflows=[remind]):
                pass
        else:
            env.sleep(DAY)

    with pytest.raises(errors.UsageError, match="async with"):
        asyncio.run(misuse(None))
    with environment(workflows=[remind]) as env, pytest.raises(errors.UsageError, match="async with"):
        asyncio.run(misuse(env))


# The plugin -----------------------------------------------------------------------------------------------------------

TEST_FILE = """
    import sys
    from datetime import timedelta

    loaded_at_start = "pledger" in sys.modules

    from pledger import workflow

    @workflow.defn
    async def divide() -> float:
        await workflow.sleep(1)
        return 1 / 0

    @workflow.defn
    async def rest() -> str:
        await workflow.sleep(3600)
        return "rested"

    def test_that_it_is_lazy():
        assert not loaded_at_start

    def test_a_good_run(pledger_env):
        assert pledger_env(workflows=[rest]).run(rest) == "rested"

    def test_a_blocked_run(pledger_env):
        env = pledger_env(workflows=[divide])
        env.start(divide)
        env.sleep(timedelta(seconds=5))
"""


def test_the_fixture_comes_with_the_package(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_orders=TEST_FILE)
    result = pytester.runpytest_subprocess("-p", "pytest_pledger", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(["*ERROR at teardown of test_a_blocked_run*", "*blocked by ZeroDivisionError*"])
