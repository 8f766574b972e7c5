"""Activities in a process of their own: for code that must not share the worker's interpreter, or must be stoppable.

The process is spawned, never forked (a fork would copy threads' locks and SQLite's connection). It gets the function by
name and the arguments decoded, and answers over a pipe; a heartbeat goes the same way.
"""

from __future__ import annotations

import asyncio
import importlib
import multiprocessing
import pickle
import signal
import threading
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from pledger.errors import ApplicationError, FailureError
from pledger.history import failures, payloads

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from pledger.engine.attempt import Attempt

#: Between the signal that asks a process to stop and the kill.
KILL_AFTER_S: Final = 5.0


def run_in_process(
    loop: asyncio.AbstractEventLoop, attempt: Attempt, args: list[Any]
) -> tuple[asyncio.Future[Any], Callable[[], None]]:
    """Start the attempt's function in a new process; the future of its result, and the way to stop it."""
    raise NotImplementedError
