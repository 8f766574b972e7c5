"""Queries: they read, and leave nothing behind that a replay could miss."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from pledger import activity, workflow
from pledger.errors import QueryFailedError, UnknownQueryError
from tests.unit.machine.harness import DrivenRun, scheduled

Drive = Callable[..., DrivenRun]


@activity.defn
async def ship(order: str) -> str:
    return order


@workflow.defn
class Order:
    def __init__(self) -> None:
        self.ok = False
        self.woken = asyncio.Event()

    @workflow.run
    async def run(self) -> str:
        await workflow.wait_condition(lambda: self.ok)
        return await ship(f"ship-{workflow.uuid4()}")

    @workflow.signal
    def go(self) -> None:
        self.ok = True

    @workflow.query
    def ready(self) -> bool:
        return self.ok

    @workflow.query
    def status(self) -> dict[str, str]:
        return {"cid": str(workflow.uuid4())}

    @workflow.query
    def tolerant_status(self) -> dict[str, str]:
        try:
            return {"cid": str(workflow.uuid4())}
        except Exception as error:  # noqa: BLE001 - what users do
            return {"error": type(error).__name__}

    @workflow.query
    def act(self, how: str) -> None:
        ACTS[how]()

    @workflow.query
    def greet(self, name: str, times: int = 1) -> str:
        return f"hello {name}" * times

    @workflow.query
    def breaks(self) -> None:
        raise KeyError("missing")

    @workflow.query
    def wakes_and_breaks(self) -> None:
        asyncio.get_running_loop().call_soon(print)
        raise KeyError("missing")

    @workflow.query
    def unserialisable(self) -> object:
        return object()


async def anything() -> None: ...


def create_task() -> None:
    asyncio.create_task(anything())  # noqa: RUF006 - refused


ACTS: dict[str, Callable[[], object]] = {
    "activity": lambda: ship("A1"),
    "start_activity": lambda: workflow.start_activity(ship, "A1"),
    "random": lambda: workflow.random().random(),
    "patched": lambda: workflow.patched("new"),
    "timer": lambda: asyncio.get_running_loop().call_later(5, print),
    "task": create_task,
    "call_soon": lambda: asyncio.get_running_loop().call_soon(print),
    "executor": lambda: asyncio.get_running_loop().run_in_executor(None, print),
}


def test_a_query_answers_from_the_present_state(drive: Drive) -> None:
    run = drive(Order)
    run.start()
    assert run.machine.query("ready", b"[]") == b"false"
    run.signal("go")
    assert run.machine.query("ready", b"[]") == b"true"


@pytest.mark.parametrize("asked", [0, 1, 7])
@pytest.mark.parametrize("query", ["status", "tolerant_status"])
def test_RPL_02_a_query_that_draws_does_not_move_the_runs_generator(drive: Drive, query: str, asked: int) -> None:
    untouched = drive(Order)
    untouched.start()
    expected = scheduled(untouched.signal("go"))

    run = drive(Order)
    run.start()
    for _ in range(asked):
        if query == "status":
            with pytest.raises(QueryFailedError, match=r"the query 'status' may not act, wait or draw"):
                run.machine.query(query, b"[]")
        else:
            assert run.machine.query(query, b"[]") == b'{"error":"ForbiddenCallError"}'
    assert scheduled(run.signal("go")) == expected
    # Replay without any query matches what is recorded.
    run.reload()
    run.complete(run.event_id_of("ship"), "shipped")
    assert run.result == "shipped"


@pytest.mark.parametrize("how", ACTS)
def test_RPL_02_a_query_may_not_act(drive: Drive, how: str) -> None:
    run = drive(Order)
    run.start()
    loop = run.machine.context.loop
    mark = loop.mark()
    with pytest.raises(QueryFailedError, match="query 'act' of workflow 'order-7421'"):
        run.machine.query("act", f'["{how}"]'.encode())
    # Nothing of it is left to come out with the next transition.
    assert run.machine.context.asked == []
    assert len(loop.live_tasks()) == 1
    assert loop.mark() == mark
    assert scheduled(run.signal("go"))[0][0] == "ship"


def test_a_query_takes_arguments_and_their_defaults(drive: Drive) -> None:
    run = drive(Order)
    run.start()
    assert run.machine.query("greet", b'["Ada"]') == b'"hello Ada"'
    assert run.machine.query("greet", b'["Ada",2]') == b'"hello Adahello Ada"'


@pytest.mark.parametrize(
    ("query", "args", "message"),
    [
        ("breaks", b"[]", "query 'breaks' of workflow 'order-7421' (Order, run 01J9X) raised KeyError: 'missing'"),
        ("unserialisable", b"[]", "raised PayloadError: the result of Order.unserialisable() cannot be kept"),
        ("greet", b"[7]", "raised PayloadError: the argument name of Order.greet() cannot be read"),
        ("greet", b"[]", "raised PayloadError: the arguments of Order.greet() cannot be read"),
    ],
)
def test_a_query_that_fails_fails_alone(drive: Drive, query: str, args: bytes, message: str) -> None:
    run = drive(Order)
    run.start()
    with pytest.raises(QueryFailedError) as caught:
        run.machine.query(query, args)
    assert message in str(caught.value)
    run.signal("go")
    run.complete(run.event_id_of("ship"), "shipped")
    assert run.result == "shipped"


@pytest.mark.parametrize("error", [asyncio.CancelledError(), SystemExit(3), GeneratorExit(), StopIteration()])
def test_a_query_that_raises_what_is_no_exception_fails_alone_too(drive: Drive, error: BaseException) -> None:
    @workflow.defn
    class Raises:
        @workflow.run
        async def run(self) -> None:
            await asyncio.sleep(60)

        @workflow.query
        def state(self) -> None:
            raise error

    run = drive(Raises)
    run.start()
    with pytest.raises(QueryFailedError, match=f"raised {type(error).__name__}"):
        run.machine.query("state", b"[]")


def test_a_query_that_wakes_somebody_and_raises_has_spoiled_the_run(drive: Drive) -> None:
    run = drive(Order)
    run.start()
    with pytest.raises(QueryFailedError):
        run.machine.query("wakes_and_breaks", b"[]")
    assert run.machine.spoiled


def test_an_unknown_query_names_those_that_there_are(drive: Drive) -> None:
    run = drive(Order)
    run.start()
    with pytest.raises(UnknownQueryError) as caught:
        run.machine.query("state", b"[]")
    assert str(caught.value) == (
        "workflow 'order-7421' (Order, run 01J9X) has no query 'state'; "
        "it has: act, breaks, greet, ready, status, tolerant_status, unserialisable, wakes_and_breaks"
    )


def test_a_query_of_a_function_finds_none(drive: Drive) -> None:
    @workflow.defn
    async def plain() -> None:
        await asyncio.sleep(1)

    run = drive(plain)
    run.start()
    with pytest.raises(UnknownQueryError, match="it has: none"):
        run.machine.query("state", b"[]")


def test_a_query_reads_the_time_and_who_the_run_is(drive: Drive) -> None:
    @workflow.defn
    class Tells:
        @workflow.run
        async def run(self) -> None:
            await asyncio.sleep(60)

        @workflow.query
        def about(self) -> list[Any]:
            return [workflow.info().workflow_id, workflow.time(), workflow.in_workflow()]

    run = drive(Tells)
    run.start()
    assert run.machine.query("about", b"[]") == f'["order-7421",{run.now_ms / 1000},true]'.encode()
