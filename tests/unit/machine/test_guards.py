# ruff: noqa: PLW0108 - a lambda looks its function up when it is called, after the guards are up
from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import copy
import gc
import importlib
import inspect
import io
import linecache
import logging
import multiprocessing.util
import os
import pickle
import random
import secrets
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.request
import uuid
import warnings
import weakref
import zoneinfo
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import pytest

from pledger.errors import ForbiddenCallError
from pledger.machine import guards

T = TypeVar("T")
ORIGINAL_TIME = time.time
ORIGINAL_SEED = random.Random.seed


@pytest.fixture(autouse=True)
def _guards_are_up() -> Iterator[None]:
    guards.install([sys.modules[__name__]])
    yield
    guards.uninstall()
    guards.leave()


def in_workflow(call: Callable[[], T]) -> T:
    guards.enter()
    try:
        return call()
    finally:
        guards.leave()


def refused(call: Callable[[], object]) -> ForbiddenCallError:
    with pytest.raises(ForbiddenCallError) as caught:
        in_workflow(call)
    assert guards.take_violation() is caught.value
    return caught.value


def allowed(call: Callable[[], T]) -> T:
    try:
        return in_workflow(call)
    finally:
        assert guards.take_violation() is None


def module_of(source: str, name: str = "shop") -> ModuleType:
    """A module that is imported from nowhere."""
    module = ModuleType(name)
    exec(source, vars(module))
    return module


# Refused --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "name", "remedy"),
    [
        (lambda: time.time(), "time.time", "workflow.time()"),
        (lambda: time.time_ns(), "time.time_ns", "workflow.time()"),
        (lambda: time.monotonic(), "time.monotonic", "workflow.time()"),
        (lambda: time.perf_counter(), "time.perf_counter", "workflow.time()"),
        (lambda: time.localtime(), "time.localtime", "workflow.time()"),
        (lambda: time.strftime("%Y"), "time.strftime", "workflow.time()"),
        (lambda: time.sleep(0), "time.sleep", "await asyncio.sleep()"),
        (lambda: random.random(), "random.random", "workflow.random()"),
        (lambda: random.randint(1, 6), "random.randint", "workflow.random()"),
        (lambda: random.choice("ab"), "random.choice", "workflow.random()"),
        (lambda: random.shuffle([1, 2]), "random.shuffle", "workflow.random()"),
        (lambda: random.seed(1), "random.seed", "workflow.random()"),
        (lambda: random.Random(), "random.Random", "workflow.random()"),
        (lambda: random.SystemRandom().random(), "random.SystemRandom.random", "workflow.random() or workflow.uuid4()"),
        (lambda: uuid.uuid1(), "uuid.uuid1", "workflow.uuid4()"),
        (lambda: uuid.uuid4(), "uuid.uuid4", "workflow.uuid4()"),
        (lambda: os.urandom(8), "os.urandom", "workflow.random() or workflow.uuid4()"),
        (lambda: secrets.token_hex(), "secrets.token_hex", "workflow.random()"),
        (lambda: secrets.randbelow(6), "secrets.randbelow", "workflow.random()"),
    ],
)
def test_what_answers_differently_on_replay_is_refused(call: Callable[[], object], name: str, remedy: str) -> None:
    error = refused(call)
    assert (error.call, error.remedy) == (name, remedy)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: open(__file__), "open"),  # noqa: PTH123, SIM115
        (lambda: io.open(__file__), "open"),  # noqa: SIM115, UP020
        (lambda: os.open(__file__, os.O_RDONLY), "open"),
        (lambda: Path(__file__).read_bytes(), "read_bytes"),
        (lambda: os.listdir(), "os.listdir"),  # noqa: PTH208
        (lambda: tempfile.mkdtemp(), "tempfile.mkdtemp"),
        (lambda: os.system("true"), "os.system"),
        (lambda: os.fork(), "os.fork"),
        (lambda: subprocess.run(["true"], check=True), "subprocess.run"),
        (lambda: subprocess.Popen(["true"]), "subprocess.Popen"),
        (lambda: socket.socket(), "socket.socket"),
        (lambda: socket.create_connection(("127.0.0.1", 9)), "socket.create_connection"),
        (lambda: urllib.request.urlopen("http://127.0.0.1:9"), "urllib.request.urlopen"),
        (lambda: sqlite3.connect(":memory:"), "sqlite3.connect"),
    ],
)
def test_what_reaches_outside_of_the_run_is_refused(call: Callable[[], object], name: str) -> None:
    error = refused(call)
    assert error.call.endswith(name)
    assert error.remedy == "do it in an activity"


def test_threads_and_processes_are_refused() -> None:
    thread = threading.Thread(target=print)
    assert refused(lambda: thread.start()).call == "threading.Thread.start"
    assert not thread.is_alive()
    spawned = multiprocessing.get_context("spawn").Process(target=print)
    assert refused(lambda: spawned.start()).remedy == "do it in an activity"
    assert refused(lambda: multiprocessing.util.spawnv_passfds(b"true", [b"true"], [])).call.endswith("spawnv_passfds")


def test_an_executor_is_refused_also_when_its_threads_are_up() -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        assert pool.submit(int, "7").result() == 7
        error = refused(lambda: pool.submit(int, "7"))
    assert error.call == "concurrent.futures.thread.ThreadPoolExecutor.submit"
    assert error.remedy == "asyncio.create_task(), or do it in an activity"


def test_to_thread_is_refused() -> None:
    assert refused(lambda: asyncio.to_thread(print)).call == "asyncio.to_thread"


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring came with 3.12")
def test_the_clocks_of_datetime_are_refused() -> None:
    assert datetime.now()  # noqa: DTZ005
    error = refused(lambda: datetime.now())  # noqa: DTZ005
    assert (error.call, error.remedy) == ("datetime.datetime.now", "workflow.now()")
    guards.uninstall()
    assert in_workflow(lambda: datetime.now())  # noqa: DTZ005


def test_the_error_names_the_call_the_place_and_the_remedy() -> None:
    def fulfil() -> float:
        return time.time()

    line = fulfil.__code__.co_firstlineno + 1
    assert str(refused(fulfil)) == (
        f"time.time() was called in workflow code, at test_guards.py:{line}, in {fulfil.__qualname__}: its answer "
        "differs on replay. Instead: workflow.time(). Where it does no harm, call it inside "
        "workflow.unsafe.guards_off()."
    )


# Allowed --------------------------------------------------------------------------------------------------------------


def test_outside_of_workflow_code_everything_goes_on() -> None:
    assert abs(time.time() - ORIGINAL_TIME()) < 60
    assert random.choices("ab", k=3)
    assert uuid.uuid4().version == 4
    assert Path(__file__).read_bytes()
    assert asyncio.run(asyncio.to_thread(int, "7")) == 7
    assert guards.take_violation() is None


def test_other_threads_are_not_affected() -> None:
    heard: list[object] = []
    go, done = threading.Event(), threading.Event()

    def beside() -> None:
        go.wait()
        try:
            heard.extend([time.time(), random.random(), random.randint(1, 6), random.Random(), os.urandom(8)])
            heard.extend([Path(__file__).read_bytes(), guards.take_violation()])
        finally:
            done.set()

    thread = threading.Thread(target=beside)
    thread.start()

    def meanwhile() -> None:
        go.set()
        done.wait()

    in_workflow(meanwhile)
    thread.join()
    assert len(heard) == 7
    assert heard[-1] is None


def test_a_clock_that_is_given_its_time_is_no_clock() -> None:
    assert allowed(lambda: time.gmtime(0)).tm_year == 1970
    assert allowed(lambda: time.strftime("%Y", time.gmtime(0))) == "1970"


def test_a_generator_with_a_seed_is_allowed() -> None:
    assert allowed(lambda: random.Random(7).random()) == random.Random(7).random()


def test_imports_are_exempt_with_what_modules_do_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "reads_the_clock.py").write_text("import time\nat = time.time()\nhere = open(__file__)\nhere.close()")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = allowed(lambda: importlib.import_module("reads_the_clock"))
    assert module.here
    monkeypatch.delitem(sys.modules, "reads_the_clock")


def test_time_zone_data_is_exempt() -> None:
    assert allowed(lambda: zoneinfo.ZoneInfo.no_cache("Europe/Zurich")).key == "Europe/Zurich"


def test_workflow_code_may_be_the_first_to_import_time_zones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "zoneinfo")
    assert allowed(lambda: importlib.import_module("zoneinfo")) is not zoneinfo


def test_tracebacks_and_warnings_are_exempt() -> None:
    linecache.clearcache()

    def explain() -> str:
        with pytest.warns(UserWarning, match="about something"):
            warnings.warn("about something", stacklevel=1)
        try:
            raise ValueError
        except ValueError:
            return traceback.format_exc()

    assert "raise ValueError" in allowed(explain)


def test_logging_is_exempt(tmp_path: Path) -> None:
    handler = logging.FileHandler(tmp_path / "log", delay=True)
    logger = logging.getLogger("shop")
    logger.addHandler(handler)
    allowed(lambda: logger.warning("late"))
    logger.removeHandler(handler)
    handler.close()
    assert (tmp_path / "log").read_text() == "late\n"


def test_a_guarded_call_beneath_an_exempt_one_is_exempt_too() -> None:
    source = "import threading\ndef listen(): t = threading.Thread(target=int); t.start(); t.join(); return t"
    assert allowed(module_of(source, "logging.queue").listen)


def test_a_package_may_be_exempt_by_name() -> None:
    theirs = module_of("import time\ndef stamp(): return time.time()", "loglib.stamps")
    refused(lambda: theirs.stamp())
    guards.install(exempt=["loglib"])
    assert allowed(lambda: theirs.stamp())
    guards.uninstall()
    guards.install()
    refused(lambda: theirs.stamp())


def test_finalizers_are_exempt() -> None:
    seen: list[float] = []

    class Resource:
        def __del__(self) -> None:
            seen.append(time.time())

    def drop() -> None:
        resource = Resource()
        weakref.finalize(resource, lambda: seen.append(time.time()))

    allowed(drop)
    assert len(seen) == 2


def test_a_signal_handler_that_interrupts_is_exempt() -> None:
    seen: list[float] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(time.time()))
    try:

        def interrupted() -> int:
            signal.raise_signal(signal.SIGUSR1)
            return sum(range(1000))

        allowed(interrupted)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen


def test_a_callback_of_the_garbage_collector_is_exempt() -> None:
    seen: list[float] = []

    def collected(*_: object) -> None:
        seen.append(time.time())

    gc.callbacks.append(collected)
    try:
        allowed(gc.collect)
    finally:
        gc.callbacks.remove(collected)
    assert seen


def test_what_called_the_machine_does_not_exempt() -> None:
    # The whole program may run inside of an import; so it may inside of a debugger.
    outer = module_of("def run(f): return f()", "importlib.somewhere")
    machine = module_of("def activate(f): return f()", "pledger.machine.somewhere")
    refused(lambda: machine.activate(lambda: time.time()))
    refused(lambda: outer.run(lambda: machine.activate(lambda: time.time())))
    allowed(lambda: machine.activate(lambda: outer.run(lambda: time.time())))


def test_the_engines_own_calls_are_exempt_and_user_code_beneath_the_machine_is_not() -> None:
    read = "import time\ndef read(): return time.time()"
    assert allowed(module_of(read, "pledger.engine.clock").read)
    for guarded in ("pledger.patterns.saga", "pledger.dialects.asl", "pledgerish"):
        refused(module_of(read, guarded).read)


# Imported by name before ----------------------------------------------------------------------------------------------


def test_functions_imported_by_name_before_are_covered_and_given_back() -> None:
    guards.uninstall()
    shop = module_of(
        "from time import time as clock\n"
        "from random import random, randint\n"
        "from uuid import uuid1\n"
        "def all(): return [lambda: clock(), lambda: random(), lambda: randint(1, 6), lambda: uuid1()]"
    )
    clock = shop.clock
    guards.install([shop])
    assert [refused(call).call for call in shop.all()] == ["time.time", "random.random", "random.randint", "uuid.uuid1"]
    guards.uninstall()
    assert shop.clock is clock
    assert len([in_workflow(call) for call in shop.all()]) == 4


def test_what_is_audited_or_asks_for_entropy_needs_no_cover() -> None:
    guards.uninstall()
    shop = module_of(
        "from os import system\n"
        "from uuid import uuid4\n"
        "from secrets import randbits\n"
        "from builtins import open as read\n"
        f"def all(): return [lambda: system('true'), lambda: uuid4(), lambda: randbits(8), lambda: read({__file__!r})]"
    )
    guards.install()
    calls = [refused(call).call for call in shop.all()]
    assert calls == ["os.system", "uuid.uuid4", "random.SystemRandom.getrandbits", "open"]


# Violations -----------------------------------------------------------------------------------------------------------


def test_a_violation_that_the_code_swallows_is_kept() -> None:
    def swallow() -> str:
        for call in (time.time, random.random):
            try:
                call()
            except Exception:  # noqa: BLE001 - what users write
                continue
        return "went on"

    assert in_workflow(swallow) == "went on"
    violation = guards.take_violation()
    assert violation is not None
    assert violation.call == "time.time"
    assert violation.__traceback__ is not None
    assert guards.take_violation() is None


def test_a_new_activation_forgets_the_violation_before() -> None:
    with pytest.raises(ForbiddenCallError):
        in_workflow(lambda: time.time())
    in_workflow(int)
    assert guards.take_violation() is None


def test_leaving_twice_and_without_entering_is_harmless() -> None:
    guards.leave()
    in_workflow(int)
    guards.leave()
    assert time.time()


# Suspended ------------------------------------------------------------------------------------------------------------


def test_suspended_code_calls_what_it_likes_and_nests() -> None:
    def code() -> None:
        with guards.suspended():
            with guards.suspended():
                time.time()
            Path(__file__).read_bytes()
        time.time()

    error = refused(code)
    assert error.__traceback__ is not None
    assert str(code.__code__.co_firstlineno + 5) in str(error)


def test_suspending_one_task_leaves_the_others_guarded() -> None:
    one, other = contextvars.copy_context(), contextvars.copy_context()
    suspension = guards.suspended()
    one.run(suspension.__enter__)
    allowed(lambda: one.run(lambda: time.time()))
    refused(lambda: other.run(lambda: time.time()))
    one.run(suspension.__exit__, None, None, None)
    refused(lambda: one.run(lambda: time.time()))


def test_a_suspended_coroutine_may_be_closed_in_another_context() -> None:
    def code() -> Iterator[None]:
        with guards.suspended():
            yield

    generator = code()
    contextvars.copy_context().run(next, generator)
    generator.close()
    refused(lambda: time.time())


# as_completed ---------------------------------------------------------------------------------------------------------


def test_as_completed_takes_futures_only() -> None:
    async def seven() -> int:
        return 7

    async def main() -> None:
        task = asyncio.ensure_future(seven())
        coroutine = seven()
        error = refused(lambda: asyncio.as_completed([task, coroutine]))
        assert error.remedy == "workflow.as_completed()"
        coroutine.close()
        for futures in ([task], iter([task])):
            first = next(iter(allowed(lambda futures=futures: asyncio.as_completed(futures))))
            assert await first == 7
        with pytest.raises(TypeError):
            next(iter(allowed(lambda: asyncio.as_completed(task))))

    asyncio.run(main())


# What takes the place of a function is like it ------------------------------------------------------------------------


def test_a_replacement_does_not_bind_where_the_original_did_not() -> None:
    class Clock:
        read = time.time

    assert Clock().read() > 0


@pytest.mark.parametrize(("module", "name"), [(time, "time"), (os, "urandom"), (uuid, "uuid1"), (random, "choice")])
def test_a_replacement_has_its_name_pickles_and_copies(module: ModuleType, name: str) -> None:
    replacement: Any = getattr(module, name)
    assert replacement.__name__ == name
    assert pickle.loads(pickle.dumps(replacement)) is replacement
    assert copy.deepcopy(replacement) == replacement


def test_a_replacement_takes_what_the_original_takes() -> None:
    assert inspect.signature(random.choice).bind("ab")
    assert uuid.uuid1(node=7, clock_seq=9).node == 7


def test_seeding_gives_the_same_numbers_as_before() -> None:
    random.seed(7)
    assert random.random() == random.Random(7).random()
    assert random.Random.seed.__name__ == "seed"


# Putting them up ------------------------------------------------------------------------------------------------------


def test_installing_twice_is_installing_once() -> None:
    guards.install()
    guards.uninstall()
    assert time.time is ORIGINAL_TIME
    assert random.Random.seed is ORIGINAL_SEED
    assert in_workflow(lambda: time.time())
    assert in_workflow(lambda: Path(__file__).read_bytes())


def test_somebody_elses_replacement_is_left_alone() -> None:
    ours = time.time
    time.time = lambda: 0.0  # a test that freezes time
    try:
        guards.uninstall()
        assert time.time() == 0.0
    finally:
        time.time = ORIGINAL_TIME
    assert ours is not ORIGINAL_TIME
