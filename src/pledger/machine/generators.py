"""Async generators of workflow code: whose they are, and when the interpreter may close them.

The interpreter tells of a generator's first iteration, and of one that is collected before its end, through two hooks
of the thread. `stage` puts ours up for as many activations as follow each other without a pause: setting them is
audited, and for every single transition it would be one of the dearest parts.

A hook is not told of the run. At the first iteration that is whoever's loop is running. At the end nothing is left to
ask, not even a weak reference, so generators are known by their address, for as long as they or their run live.
"""

from __future__ import annotations

import sys
import weakref
from asyncio import _get_running_loop  # documented for event loops
from collections.abc import AsyncGenerator, Callable
from types import TracebackType
from typing import Any, Final

#: A run's addresses are looked through for those of finished generators when they have grown to this.
_SWEEP_AT: Final = 32

_owners: Final[dict[int, Generators]] = {}


class Generators:
    """Those that one run has begun to iterate. left: gets one that was collected before its end."""

    def __init__(self, left: Callable[[AsyncGenerator[Any, Any]], None]) -> None:
        self._left = left
        self._alive: weakref.WeakSet[AsyncGenerator[Any, Any]] = weakref.WeakSet()
        self._addresses: set[int] = set()
        self._sweep_at = _SWEEP_AT

    def add(self, generator: AsyncGenerator[Any, Any]) -> None:
        self._alive.add(generator)
        self._addresses.add(id(generator))
        _owners[id(generator)] = self
        if len(self._addresses) > self._sweep_at:
            kept = {id(each) for each in self._alive}
            self._disown(self._addresses - kept)
            self._addresses = kept
            self._sweep_at = 2 * len(kept) + _SWEEP_AT

    def alive(self) -> list[AsyncGenerator[Any, Any]]:
        """Those that may not have come to their end."""
        return list(self._alive)

    def collected(self, generator: AsyncGenerator[Any, Any]) -> None:
        self._left(generator)

    def forget(self) -> None:
        """The run has left memory: nobody is told of any more."""
        self._disown(self._addresses)
        self._addresses = set()

    def _disown(self, addresses: set[int]) -> None:
        for address in addresses:
            if _owners.get(address) is self:  # another run's generator may have been made in the same place since
                del _owners[address]


class stage:  # noqa: N801 - a context manager, used like a function
    """Inside, this thread knows of the generators of whichever run is being activated."""

    __slots__ = ("_outer",)

    def __enter__(self) -> None:
        self._outer = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(_begun, _collected)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        sys.set_asyncgen_hooks(*self._outer)


def _begun(generator: AsyncGenerator[Any, Any]) -> None:
    begun = getattr(_get_running_loop(), "generator_begun", None)
    if begun is not None:
        begun(generator)


def _collected(generator: AsyncGenerator[Any, Any]) -> None:
    owner = _owners.pop(id(generator), None)
    if owner is not None:
        owner.collected(generator)
