"""Watches the calls of `datetime.now`, `utcnow` and `today`: methods of C types, which nothing can replace.

From Python 3.12 `sys.monitoring` tells of the calls that a function makes. Only functions that name such a method are
watched, and in these every other call is reported once and then never again, so that what remains is the cost at the
calls of the methods themselves (some 0.3 us). Before 3.12 nothing is watched.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Final

_METHODS: Final = frozenset({"now", "utcnow", "today"})

#: Free ids of `sys.monitoring`: 0 to 2 and 5 are set aside for debuggers, coverage, profilers and optimizers.
_TOOLS: Final = (4, 3)


class ClockMethods:
    """called: told of every call that is watched (like "datetime.datetime.now") before it is made, with the frame that
    makes it. What it raises is raised there, in place of the call.

    Where other tools have taken every free id of `sys.monitoring`, nothing is watched.
    """

    def __init__(self, called: Callable[[str, FrameType], None]) -> None:
        self._called = called
        self._tool: int | None = None
        self._examined: set[ModuleType] = set()
        self._watched: set[ModuleType] = set()
        self._codes: list[CodeType] = []

    if sys.version_info >= (3, 12):

        def watch(self, modules: Iterable[ModuleType]) -> None:
            """Watch the functions of these modules, and of all loaded ones that know `datetime`; to be called again
            for what is loaded later. Takes some 5 ms in a process of 500 modules, much less when little is new."""
            if self._tool is None:
                self._tool = next((tool for tool in _TOOLS if sys.monitoring.get_tool(tool) is None), None)
                if self._tool is None:
                    return
                sys.monitoring.use_tool_id(self._tool, "pledger")
                sys.monitoring.register_callback(self._tool, sys.monitoring.events.CALL, self._on_call)
            loaded: list[object] = list(sys.modules.values())  # some programs put other objects there
            fresh = {module for module in loaded if isinstance(module, ModuleType)} - self._examined
            self._examined |= fresh
            unwatched = {*modules, *filter(_knows_datetime, fresh)} - self._watched
            self._watched |= unwatched
            if unwatched:
                for code in _codes_of(unwatched):
                    sys.monitoring.set_local_events(self._tool, code, sys.monitoring.events.CALL)
                    self._codes.append(code)

        def stop(self) -> None:
            """Watch nothing any more."""
            if self._tool is not None:
                for code in self._codes:
                    sys.monitoring.set_local_events(self._tool, code, sys.monitoring.events.NO_EVENTS)
                sys.monitoring.register_callback(self._tool, sys.monitoring.events.CALL, None)
                sys.monitoring.free_tool_id(self._tool)
                self._tool = None
            for kept in (self._examined, self._watched, self._codes):
                kept.clear()

        def _on_call(self, _code: CodeType, _offset: int, function: object, _argument: object) -> object:
            if not _is_clock_method(function):
                return sys.monitoring.DISABLE  # at this place
            self._called(f"datetime.{function.__qualname__}", sys._getframe(1))  # type: ignore[attr-defined] # noqa: SLF001
            return None

    else:

        def watch(self, modules: Iterable[ModuleType]) -> None:
            """Nothing can be watched."""

        def stop(self) -> None: ...


def _is_clock_method(function: object) -> bool:
    return (
        type(function) is BuiltinFunctionType
        and function.__name__ in _METHODS
        and isinstance(function.__self__, type)
        and issubclass(function.__self__, date)
    )


def _knows_datetime(module: ModuleType) -> bool:
    known = (sys.modules["datetime"], datetime, date)
    return any(value is one for value in list(vars(module).values()) for one in known)


def _codes_of(modules: Iterable[ModuleType]) -> Iterator[CodeType]:
    """The code of the functions of these modules, and of what is defined inside of them, where it names a method.

    Functions are found among all live objects, since decorators keep them where no walk of a module comes.
    """
    namespaces = {id(vars(module)) for module in modules}
    for candidate in gc.get_objects():
        if type(candidate) is FunctionType and id(candidate.__globals__) in namespaces:
            nested = [candidate.__code__]
            for code in nested:  # grows
                nested += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
                if not _METHODS.isdisjoint(code.co_names):
                    yield code
