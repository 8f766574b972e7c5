"""Guards against harm in workflow code: calls that answer differently on replay, act outside, or stop the worker.

A thread is in workflow code between `enter` and `leave`, which the machine calls around every activation; other threads
are never affected. In between, a guarded call raises `ForbiddenCallError`, naming the call and the remedy. Code that
catches `Exception` may swallow it, so the first violation of an activation is also kept for `take_violation`.

Three nets, all put up by `install`:

- *Replaced functions*: clocks, sleep, chance, entropy, threads, executors, asyncio's `to_thread` and `as_completed`; in
  their own modules and, under whatever name they were imported before, in the modules given to `install`.
- *The audit hook*: files, sockets, processes and databases, however they were imported. What every supported
  interpreter audits is not replaced as well, so that it costs next to nothing outside of workflow code.
- *The call monitor* of `clock_methods`, from Python 3.12: `datetime.now` and its like, which nothing can replace. On
  3.11 these are left to the lint.

What passes all three (C extensions with clocks, random numbers or connections of their own, a function kept in a class
or a default before `install`, the order of a set) is left to the lint and to verification, which replays what has run.

Outside of workflow code a replaced clock costs 0.05 us more, a replaced function with arguments 0.1 to 0.4 us.

Exempt is what does no harm though it looks like it: imports, time-zone data, the sources of tracebacks and warnings,
logging, debuggers, and what merely happens to run meanwhile: finalizers and signal handlers. And `suspended` code.

Modules are named by text here, not imported: the machine itself must not use them.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import importlib
import os
import sys
from _thread import allocate_lock, get_ident
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from types import FrameType, MethodType, ModuleType, TracebackType
from typing import Any, Final

from pledger.errors import ForbiddenCallError
from pledger.machine.clock_methods import ClockMethods
from pledger.machine.rules import (
    AS_COMPLETED,
    CALENDAR,
    CHANCE,
    CLOCK,
    CLOCK_BY_DEFAULT,
    CLOCKS,
    EFFECT,
    ENTROPY,
    ID,
    SLEEP,
    THREAD,
    Rule,
)

__all__ = ["are_off", "enter", "install", "leave", "suspended", "take_violation", "uninstall"]

#: What the interpreter audits: https://docs.python.org/3/library/audit_events.html
_AUDITED: Final[dict[str, Rule]] = {
    "time.sleep": SLEEP,  # from 3.13
    "_thread.start_new_thread": THREAD,  # from 3.12
    "_thread.start_joinable_thread": THREAD,  # from 3.13
    **dict.fromkeys(
        """
        open os.listdir os.scandir os.chdir os.chmod os.chown os.link os.mkdir os.remove os.rename os.rmdir os.symlink
        os.truncate os.utime tempfile.mkstemp tempfile.mkdtemp
        os.putenv os.unsetenv os.kill os.killpg signal.pthread_kill
        os.system os.exec os.fork os.forkpty os.posix_spawn os.spawn os.startfile pty.spawn subprocess.Popen
        _winapi.CreateProcess
        socket.__new__ socket.bind socket.connect socket.getaddrinfo socket.gethostbyaddr socket.gethostbyname
        socket.gethostname socket.getnameinfo socket.sendmsg socket.sendto http.client.connect http.client.send
        sqlite3.connect builtins.input webbrowser.open
        """.split(),  # noqa: SIM905 - as a list it is a page
        EFFECT,
    ),
}

#: The remedy by the library that workflow code asked, where the call beneath is too general to tell.
_LIBRARIES: Final = {"uuid": ID, "secrets": CHANCE, "tempfile": EFFECT}

#: Packages in whose frames everything is allowed.
_EXEMPT_BY_DEFAULT: Final = frozenset(
    (  # noqa: SIM905 - as above
        "_frozen_importlib _frozen_importlib_external importlib zipimport "  # imports, and what modules do then
        "zoneinfo dateutil.tz pytz "  # time-zone data
        "linecache traceback tokenize inspect warnings "  # sources, to show them
        "logging loguru structlog opentelemetry.sdk "  # observers: they read clocks and decide nothing
        "weakref "  # finalizers
        "bdb pdb debugpy pydevd _pydevd_bundle _pydev_bundle coverage "
        "pledger.engine pledger.store"  # what these hand to a machine
    ).split()
)

#: The package whose frames mark where workflow code begins: it is what calls it, and makes no guarded call itself.
_MACHINE: Final = __name__.rpartition(".")[0]


# Whether a call is made by workflow code ------------------------------------------------------------------------------

#: The threads that run workflow code. A set, and no thread-local flag: outside of workflow code it is empty, which is
#: the whole check. Adding and discarding are atomic.
inside: Final[set[int]] = set()
#: The first violation of each thread since it was added.
violations: Final[dict[int, ForbiddenCallError]] = {}
_exempt_packages: Final[set[str]] = set(_EXEMPT_BY_DEFAULT)
# A context variable, since a task that awaits inside `suspended` must not take the guards from the others.
_suspended: Final = ContextVar("pledger_guards_suspended", default=False)


def enter() -> None:
    """From here on this thread runs workflow code. Does not nest; forgets an earlier violation."""
    thread = get_ident()
    inside.add(thread)
    if violations:
        violations.pop(thread, None)


def leave() -> None:
    inside.discard(get_ident())


def take_violation() -> ForbiddenCallError | None:
    """The first violation since `enter` on this thread, also one that the code swallowed; told once."""
    return violations.pop(get_ident(), None) if violations else None


class suspended:  # noqa: N801 - a context manager, used like a function
    """Inside, this task makes any call, and so do the tasks that it starts there."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = _suspended.get()
        _suspended.set(True)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        # Not by token: a coroutine closed by the garbage collector leaves in another context than it entered in.
        _suspended.set(self._before)


def are_off() -> bool:
    """Whether the calling code is inside `suspended`."""
    return _suspended.get()


def _judge(call: str, rule: Rule, caller: FrameType) -> None:
    """Raise for a guarded call that `caller` makes in this thread's workflow code; return when it is exempt."""
    if _suspended.get():
        return
    frames = []
    for frame in _workflow_frames(caller):
        if _is_exempt(frame):
            return
        frames.append(frame)
    if _interrupters().isdisjoint(frame.f_code for frame in frames):
        raise _violation(call, rule, frames)


def _violation(call: str, rule: Rule, frames: list[FrameType]) -> ForbiddenCallError:
    """The error, kept when it is the first. Names what the nearest code outside of the standard library called."""
    where = ""
    for position, frame in enumerate(frames):
        if _module(frame).partition(".")[0] in sys.stdlib_module_names:
            continue
        file = frame.f_code.co_filename.rpartition(os.sep)[2]
        where = f", at {file}:{frame.f_lineno}, in {frame.f_code.co_qualname}"
        if position > 0:
            library = frames[position - 1]
            call = f"{_module(library)}.{library.f_code.co_qualname}".removesuffix(".__init__")
            rule = _LIBRARIES.get(_module(library), rule)
        break
    error = ForbiddenCallError(
        f"{call}() was called in workflow code{where}: {rule.reason}. Instead: {rule.remedy}. "
        "Where it does no harm, call it inside workflow.unsafe.guards_off().",
        call=call,
        remedy=rule.remedy,
    )
    violations.setdefault(get_ident(), error)
    return error


def _caller() -> FrameType:
    """The frame that called what asks."""
    return sys._getframe(2)  # noqa: SLF001 - who calls is the whole question


def _workflow_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """The frames from this one out to where the machine called workflow code. What called the machine is no concern:
    a whole program may run within an import or a debugger."""
    while frame is not None:
        module = _module(frame)
        if module != __name__:  # a replacement that let an exempt call through
            if module == _MACHINE or module.startswith(f"{_MACHINE}."):
                return
            yield frame
        frame = frame.f_back


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _is_exempt(frame: FrameType) -> bool:
    if frame.f_code.co_name == "__del__":  # runs when the garbage collector comes, whosever object it is
        return True
    package = _module(frame)
    while package:
        if package in _exempt_packages:
            return True
        package = package.rpartition(".")[0]
    return False


def _interrupters() -> set[object]:
    """The code of this process's signal handlers and of its callbacks for garbage collections: whatever they interrupt
    has their frames on top of it."""
    handlers: list[object] = list(gc.callbacks)
    signal = sys.modules.get("signal")
    if signal is not None:
        handlers += [signal.getsignal(number) for number in signal.valid_signals()]
    return {getattr(handler, "__code__", None) for handler in handlers}


# Replaced functions ---------------------------------------------------------------------------------------------------


class _Home:
    """The `self` of a replacement that is made a bound method.

    Builtin functions do not bind: `class Clock: read = time.time` calls it without self. Bound methods do not bind
    again either, and are as quick as functions. They pickle as an attribute of the module, as the original does.
    """

    __slots__ = ("_module",)

    def __init__(self, module: str) -> None:
        self._module = module

    def __reduce__(self) -> tuple[Callable[[str], ModuleType], tuple[str]]:
        return importlib.import_module, (self._module,)

    def __deepcopy__(self, _: dict[int, Any]) -> _Home:
        return self


@dataclass(frozen=True, slots=True)
class _Patch:
    """attribute of owner (a module or a class) is `replacement` instead of `original`."""

    owner: object
    attribute: str
    original: Any
    replacement: Any

    def apply(self) -> None:
        setattr(self.owner, self.attribute, self.replacement)

    def undo(self) -> None:
        # Somebody else's replacement on top of ours (a test that freezes time) is theirs to take away.
        if vars(self.owner)[self.attribute] is self.replacement:
            setattr(self.owner, self.attribute, self.original)


def _always(*_: object, **__: object) -> bool:
    return True


def _quick(original: Callable[[], Any], call: str, rule: Rule) -> Callable[..., Any]:
    def guarded(_: object) -> Any:
        if inside and get_ident() in inside:
            _judge(call, rule, _caller())
        return original()

    return guarded


def _general(
    original: Callable[..., Any], call: str, rule: Rule, harms: Callable[..., bool] = _always
) -> Callable[..., Any]:
    """harms: whether a call with these arguments does; asked in workflow code only."""

    def guarded(_: object, /, *args: Any, **kwargs: Any) -> Any:
        if inside and get_ident() in inside and harms(*args, **kwargs):
            _judge(call, rule, _caller())
        return original(*args, **kwargs)

    return guarded


def _in_module(module: str, attribute: str, guarded: Callable[..., Any], original: Any) -> _Patch:
    functools.update_wrapper(guarded, original)
    del guarded.__wrapped__  # type: ignore[attr-defined] # the signature is read from it, and then loses its first part
    return _Patch(importlib.import_module(module), attribute, original, MethodType(guarded, _Home(module)))


def _patches() -> Iterator[_Patch]:
    for module, names, rule in (
        ("time", CLOCKS, CLOCK),
        ("random", ("random",), CHANCE),
    ):
        for name, original in _present(module, names):
            yield _in_module(module, name, _quick(original, f"{module}.{name}", rule), original)

    chance = importlib.import_module("random")
    for module, names, rule in (
        ("random", tuple(name for name in chance.__all__ if name.islower() and name != "random"), CHANCE),
        ("time", ("clock_gettime", "clock_gettime_ns"), CLOCK),
        ("time", ("sleep",), SLEEP),
        ("uuid", ("uuid1",), ID),  # uuid4 asks os.urandom, and is known by that
        ("os", ("urandom", "getrandom"), ENTROPY),
        ("_posixsubprocess", ("fork_exec",), EFFECT),  # multiprocessing's spawn is not audited
        ("asyncio", ("to_thread",), THREAD),
        ("asyncio.threads", ("to_thread",), THREAD),
    ):
        for name, original in _present(module, names):
            yield _in_module(module, name, _general(original, f"{module}.{name}", rule), original)

    for name, original in _present("time", CLOCK_BY_DEFAULT):
        position = CLOCK_BY_DEFAULT[name]
        harms = functools.partial(_time_is_missing, position)
        yield _in_module("time", name, _general(original, f"time.{name}", CLOCK, harms), original)

    for module in ("asyncio", "asyncio.tasks"):
        yield _in_module(module, "as_completed", _as_completed(asyncio.as_completed), asyncio.as_completed)

    # Methods, through their class: a generator without a seed takes one from the system, and whatever an executor
    # of any kind is given becomes a concurrent Future.
    yield _in_class(chance.Random, "seed", CHANCE, lambda _, a=None, *__, **___: a is None)
    yield _in_class(importlib.import_module("threading").Thread, "start", THREAD)
    yield _in_class(importlib.import_module("concurrent.futures").Future, "__init__", THREAD)


def _present(module: str, names: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """The functions of the module that this platform and version have."""
    try:
        found = vars(importlib.import_module(module))
    except ImportError:
        return
    yield from ((name, found[name]) for name in names if name in found)


def _in_class(owner: type, attribute: str, rule: Rule, harms: Callable[..., bool] = _always) -> _Patch:
    original = vars(owner)[attribute]
    call = f"{owner.__module__}.{owner.__qualname__}.{attribute}".removesuffix(".__init__")

    @functools.wraps(original)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        if inside and get_ident() in inside and harms(*args, **kwargs):
            _judge(call, rule, _caller())
        return original(*args, **kwargs)

    return _Patch(owner, attribute, original, guarded)


def _time_is_missing(position: int, *args: object) -> bool:
    return len(args) <= position or args[position] is None


def _as_completed(original: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(_: object, fs: Any, **kwargs: Any) -> Any:
        if inside and get_ident() in inside and not (asyncio.isfuture(fs) or asyncio.iscoroutine(fs)):
            fs = list(fs)  # it may be an iterator, which gives its items once
            if not all(map(asyncio.isfuture, fs)):
                _judge("asyncio.as_completed", AS_COMPLETED, _caller())
        return original(fs, **kwargs)

    return guarded


class _Replacements:
    """The functions that are replaced at present."""

    def __init__(self) -> None:
        self._applied: list[_Patch] = []

    def __bool__(self) -> bool:
        return bool(self._applied)

    def apply(self) -> None:
        if not self._applied:
            self._applied = list(_patches())
            for patch in self._applied:
                patch.apply()
            # random.SystemRandom and `secrets` beneath it hold os.urandom by a name of their own.
            self.cover([importlib.import_module("random")])

    def cover(self, modules: Iterable[ModuleType]) -> None:
        """Replace the functions in these modules too, under whatever name they imported them before."""
        by_original = {id(patch.original): patch.replacement for patch in self._applied}
        for module in modules:
            for name, value in list(vars(module).items()):
                replacement = by_original.get(id(value))
                if replacement is not None:
                    patch = _Patch(module, name, value, replacement)
                    patch.apply()
                    self._applied.append(patch)

    def undo(self) -> None:
        while self._applied:
            self._applied.pop().undo()


# The audit hook -------------------------------------------------------------------------------------------------------


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if inside and get_ident() in inside and event in _AUDITED and _replacements and not _reads_time_zone(event, args):
        _judge(event, _AUDITED[event], _caller())


def _reads_time_zone(event: str, args: tuple[Any, ...]) -> bool:
    """Whether a time zone is being loaded: `ZoneInfo` is in C and leaves no frame to know it by."""
    # A module is listed before it has run, and opening its own file is an event too: then it has no path yet.
    places = getattr(sys.modules.get("zoneinfo"), "TZPATH", ())
    return event == "open" and str(args[0]).startswith(tuple(places))


@functools.cache
def _add_audit_hook() -> None:
    """Once per process: a hook cannot be taken away."""
    sys.addaudithook(_audit)


# The call monitor -----------------------------------------------------------------------------------------------------


def _judge_clock_method(call: str, frame: FrameType) -> None:
    if inside and get_ident() in inside:
        _judge(call, CALENDAR, frame)


# Putting them up ------------------------------------------------------------------------------------------------------

_replacements: Final = _Replacements()
_clock_methods: Final = ClockMethods(_judge_clock_method)
_installing: Final = allocate_lock()


def install(modules: Iterable[ModuleType] = (), *, exempt: Iterable[str] = ()) -> None:
    """Put up the guards of this process, and cover these modules: those of the user's workflows and what they import.

    May be called again, and should be for every worker: what is up stays up, modules that are new are covered.
    exempt: names of further packages in whose frames everything is allowed, such as a logging library.
    """
    with _installing:
        modules = tuple(modules)
        _exempt_packages.update(exempt)
        _replacements.apply()
        _replacements.cover(modules)
        _add_audit_hook()
        _clock_methods.watch(modules)


def uninstall() -> None:
    """Take the guards down again: for tests. The audit hook stays, and does nothing."""
    with _installing:
        _clock_methods.stop()
        _replacements.undo()
        _exempt_packages.intersection_update(_EXEMPT_BY_DEFAULT)
