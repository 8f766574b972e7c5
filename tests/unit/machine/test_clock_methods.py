# ruff: noqa: DTZ001, DTZ002, DTZ003, DTZ005, DTZ011 - reading the clock is what this is about
from __future__ import annotations

import asyncio
import datetime as dt
import functools
import sys
import types
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta, timezone
from types import FrameType

import pytest

from pledger.machine.clock_methods import ClockMethods

if sys.version_info < (3, 12):
    pytest.skip("sys.monitoring came with 3.12", allow_module_level=True)


class Refused(Exception):  # noqa: N818 - no error, the answer of the one who is told
    pass


class Told:
    """Hears of the calls that are watched; refuses them when told to."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.where: list[str] = []
        self.refuses = False

    def __call__(self, call: str, frame: FrameType) -> None:
        self.calls.append(call)
        self.where.append(frame.f_code.co_name)
        if self.refuses:
            raise Refused(call)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def clock_methods(told: Told) -> Iterator[ClockMethods]:
    methods = ClockMethods(told)
    methods.watch([sys.modules[__name__]])
    yield methods
    methods.stop()


def traced(function: Callable[[], object]) -> Callable[[], object]:
    return functools.partial(function)  # where no walk of the module's globals finds the function


class Order:
    def placed(self) -> datetime:
        return datetime.now(timezone.utc)  # noqa: UP017

    @property
    def age(self) -> timedelta:
        return dt.datetime.today() - dt.datetime(2026, 1, 1)

    @staticmethod
    def day() -> date:
        return date.today()


@traced
def decorated() -> datetime:
    return datetime.utcnow()


def by_arguments(*args: timezone) -> datetime:
    return datetime.now(*args)


def generated() -> list[datetime]:
    return list(datetime.now() for _ in "ab")  # noqa: C400


def awaited() -> date:
    async def today() -> date:
        await asyncio.sleep(0)
        return date.today()

    return asyncio.run(today())


@pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow")
@pytest.mark.parametrize(
    ("call", "methods"),
    [
        (Order().placed, ["now"]),
        (lambda: Order().age, ["today"]),
        (Order.day, ["today"]),
        (decorated, ["utcnow"]),
        (by_arguments, ["now"]),
        (generated, ["now", "now"]),
        (awaited, ["today"]),
        (lambda: [datetime.now(tz=None), date.today()], ["now", "today"]),
    ],
)
@pytest.mark.usefixtures("clock_methods")
def test_every_call_is_told_and_may_be_refused(told: Told, call: Callable[[], object], methods: list[str]) -> None:
    for _ in range(3):
        told.calls.clear()
        assert call()
        assert [name.rpartition(".")[2] for name in told.calls] == methods
    told.refuses = True
    with pytest.raises(Refused):
        call()


@pytest.mark.usefixtures("clock_methods")
def test_the_frame_is_the_one_that_calls(told: Told) -> None:
    Order().placed()
    assert (told.calls, told.where) == (["datetime.datetime.now"], ["placed"])


@pytest.mark.usefixtures("clock_methods")
def test_other_calls_are_not_told(told: Told) -> None:
    class Screen:
        def now(self) -> int:
            return 1

    assert Screen().now() + len(str(datetime(2026, 1, 1))) > 1
    assert told.calls == []


def test_a_place_that_calls_something_else_is_reported_once(clock_methods: ClockMethods) -> None:
    assert clock_methods._on_call(Order.placed.__code__, 0, len, None) is sys.monitoring.DISABLE


def test_libraries_that_know_datetime_are_watched_too(
    clock_methods: ClockMethods, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = {
        "by_module": "import datetime\ndef now(): return datetime.datetime.now()",
        "by_class": "from datetime import datetime as d\ndef now(): return d.now()",
        "inside": "def now():\n    from datetime import datetime\n    return datetime.now()",
    }
    modules = {name: types.ModuleType(name) for name in sources}
    for name, module in modules.items():
        exec(sources[name], vars(module))
        monkeypatch.setitem(sys.modules, name, module)
    clock_methods.watch([])
    for module in modules.values():
        module.now()
    assert len(told.calls) == 2
    clock_methods.watch([modules["inside"]])
    modules["inside"].now()
    assert len(told.calls) == 3


def test_what_is_stopped_tells_nothing_and_may_start_again(clock_methods: ClockMethods, told: Told) -> None:
    clock_methods.stop()
    clock_methods.stop()
    assert "pledger" not in {sys.monitoring.get_tool(tool) for tool in range(6)}
    sys.monitoring.use_tool_id(4, "the next one")
    assert sys.monitoring.get_local_events(4, Order.placed.__code__) == sys.monitoring.events.NO_EVENTS
    sys.monitoring.free_tool_id(4)
    Order().placed()
    assert told.calls == []
    clock_methods.watch([sys.modules[__name__]])
    Order().placed()
    assert told.calls == ["datetime.datetime.now"]


def test_without_a_free_tool_nothing_is_watched(clock_methods: ClockMethods, told: Told) -> None:
    clock_methods.stop()
    for tool in (3, 4):
        sys.monitoring.use_tool_id(tool, "somebody")
    try:
        clock_methods.watch([sys.modules[__name__]])
        Order().placed()
        assert told.calls == []
    finally:
        for tool in (3, 4):
            sys.monitoring.free_tool_id(tool)
