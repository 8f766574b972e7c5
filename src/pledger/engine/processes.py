"""Activities in a process of their own: for code that must not share the worker's interpreter, or must be stoppable.

The process is spawned, never forked: a fork would copy locks that other threads hold, and SQLite's connections. It
imports the function by name, gets its arguments as the JSON of the ledger, and answers over a pipe; heartbeats go the
same way. It is stopped by SIGTERM and, if that does not help within five seconds, killed: after that it certainly does
nothing any more, which no thread can promise.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import importlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pledger.engine.attempt import Attempt, CompleteAsync, running
from pledger.engine.keyring import token_of
from pledger.engine.port.records import TaskRow
from pledger.engine.port.tokens import TokenKey
from pledger.engine.secrets import hold
from pledger.errors import ApplicationError, CancelledError, UsageError, WorkerLostError
from pledger.history import events, failures
from pledger.machine.definitions import ActivityDefinition
from pledger.machine.identity import RunIdentity

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

#: Between the signal that asks a process to stop and the kill.
KILL_AFTER_S: Final = 5.0

_spawn = multiprocessing.get_context("spawn")


class Order(msgspec.Struct, frozen=True):
    """What the child process needs to be the attempt: everything in it is plain data."""

    module: str
    qualname: str
    command: bytes
    identity: dict[str, str]
    segment: int
    event_id: int
    number: int
    scheduled_ms: int
    started_ms: int
    row: bytes | None
    run_deadline_ms: int | None
    now_ms: int
    asked_s: float
    key: TokenKey | None


def run_in_process(loop: asyncio.AbstractEventLoop, attempt: Attempt) -> tuple[asyncio.Future[Any], Callable[[], None]]:
    """Start the attempt's function in a new process; the future of its result, and the way to stop it."""
    future: asyncio.Future[Any] = loop.create_future()
    ours, theirs = _spawn.Pipe(duplex=False)
    # Filled before the process starts, and handed over by a pipe: never on a command line, nor in an environment.
    secrets: dict[str, str] = {}
    order = msgspec.msgpack.encode(_order(attempt))
    process = _spawn.Process(target=_child, args=(order, theirs, secrets), daemon=True)
    stopped = threading.Event()

    def settle(result: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def watch() -> None:
        """In a thread of its own: start the child, read what it says, see it end."""
        try:
            secrets.update(attempt.resolve() if attempt.resolve is not None else {})
            process.start()
            theirs.close()
            if stopped.is_set():  # before there was anything to send a signal to
                stop()
            error, result = _listen(ours, attempt)
        except Exception as raised:  # noqa: BLE001 - whatever it is, the attempt has failed with it
            error, result = raised, None
        if process.pid is not None:
            process.join()
        with contextlib.suppress(RuntimeError):  # the worker did not wait for it, and its loop is closed
            loop.call_soon_threadsafe(settle, result, error)

    def stop() -> None:
        stopped.set()
        threading.Thread(target=_end, args=(process,), name="pledger-process-end", daemon=True).start()

    threading.Thread(target=watch, name="pledger-process", daemon=True).start()
    return future, stop


def _order(attempt: Attempt) -> Order:
    fn, who = attempt.definition.fn, attempt.identity
    if "<locals>" in fn.__qualname__:
        raise UsageError(
            f"activity {attempt.definition.name!r} runs in a process of its own, which imports it by name: "
            f"define it at the top level of a module, not inside a function"
        )
    return Order(
        fn.__module__,
        fn.__qualname__,
        msgspec.msgpack.encode(attempt.command),
        {
            "namespace": who.namespace,
            "workflow_id": who.workflow_id,
            "run_id": who.run_id,
            "workflow_type": who.workflow_type,
            "task_queue": who.task_queue,
            "chain_id": who.chain_id,
        },
        who.segment,
        attempt.event_id,
        attempt.number,
        attempt.scheduled_ms,
        attempt.started_ms,
        None if attempt.row is None else msgspec.msgpack.encode(attempt.row),
        attempt.run_deadline_ms,
        attempt.now_ms(),
        time.monotonic(),
        attempt.key(),
    )


def _listen(pipe: Connection, attempt: Attempt) -> tuple[BaseException | None, Any]:
    """(error, result) of the child; heartbeats are passed on."""
    while True:
        try:
            kind, data = pipe.recv_bytes(), pipe.recv_bytes()
        except (EOFError, OSError):  # the other one where it was killed in the middle of its answer
            if attempt.ending is not None:
                return CancelledError(attempt.ending.message), None
            return WorkerLostError("the activity's process ended without an answer; its effect is unknown"), None
        match kind:
            case b"h":
                attempt.beat_encoded(data or None)
            case b"p":
                # Waits for room: the pipe is full then, and the child waits too.
                attempt.publish_encoded(*msgspec.msgpack.decode(data, type=tuple[str, bytes]))
            case b"o":
                return CompleteAsync(), None
            case b"f":
                return failures.to_exception(failures.decode(data)), None
            case _:
                return None, attempt.definition.signature.decode_result(data)


def _end(process: Any) -> None:
    if process.pid is not None and process.is_alive():
        process.terminate()
        process.join(KILL_AFTER_S)
        if process.is_alive():
            process.kill()


# In the child ---------------------------------------------------------------------------------------------------------


def _child(data: bytes, pipe: Connection, secrets: dict[str, str]) -> None:
    """Be the attempt: run the function, answer with its result or failure."""
    # A terminal sends Ctrl-C to the whole group: whether the attempt may go on is for the worker to say.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    order = msgspec.msgpack.decode(data, type=Order)
    context = contextvars.copy_context()
    if secrets:
        hold(context, secrets)
    try:
        definition = _definition(order)
        attempt = _Remote(definition, order, pipe)
        context.run(running.set, attempt)
        args = definition.signature.decode_args(attempt.command.args)
        positional, keywords = definition.signature.split(args)
        result = context.run(definition.fn, *positional, **keywords)
        kind, answer = b"r", definition.signature.encode_result(result)
    except CompleteAsync:
        kind, answer = b"o", b""
    except BaseException as error:  # noqa: BLE001 - all of it goes to the worker
        if isinstance(error, SystemExit):
            error = ApplicationError(f"the activity called sys.exit({error.code!r})", type="SystemExit")
        kind, answer = b"f", msgspec.msgpack.encode(failures.from_exception(error))
    pipe.send_bytes(kind)
    pipe.send_bytes(answer)
    pipe.close()


def _definition(order: Order) -> ActivityDefinition[Any, Any]:
    found: Any = importlib.import_module(order.module)
    for name in order.qualname.split("."):
        found = getattr(found, name)
    if not isinstance(found, ActivityDefinition):
        raise UsageError(f"{order.module}.{order.qualname} is no activity in the process that should run it")
    return found


def _identity(order: Order) -> RunIdentity:
    who = order.identity
    return RunIdentity(
        namespace=who["namespace"],
        workflow_id=who["workflow_id"],
        run_id=who["run_id"],
        workflow_type=who["workflow_type"],
        task_queue=who["task_queue"],
        chain_id=who["chain_id"],
        segment=order.segment,
    )


def _no_loop() -> asyncio.AbstractEventLoop:
    """The attempt's loop is in the worker's process; here there is none to call back."""
    loop = asyncio.new_event_loop()
    loop.close()
    return loop


class _Remote(Attempt):
    """The attempt as its own process sees it: heartbeats go over the pipe."""

    def __init__(self, definition: ActivityDefinition[Any, Any], order: Order, pipe: Connection) -> None:
        row = None if order.row is None else msgspec.msgpack.decode(order.row, type=TaskRow)
        super().__init__(
            definition,
            _identity(order),
            os.getpid(),
            order.event_id,
            msgspec.msgpack.decode(order.command, type=events.ScheduleActivity),
            order.number,
            0,
            order.scheduled_ms,
            order.started_ms,
            row,
            _no_loop(),
            None,
            order.run_deadline_ms,
        )
        self._pipe = pipe
        self._publishing = threading.Lock()
        self._key = order.key
        # The ledger's time, carried on from when the worker gave the order: one machine has one monotonic clock.
        self.now_ms = lambda: order.now_ms + int((time.monotonic() - order.asked_s) * 1000)

    def token(self, expires_ms: int) -> str:
        assert self._key is not None, "it came with the order"
        return token_of(self._key, self.identity, self.event_id, self.number, expires_ms)

    def publish_encoded(self, topic: str, body: bytes) -> None:
        with self._publishing:
            self._pipe.send_bytes(b"p")
            self._pipe.send_bytes(msgspec.msgpack.encode((topic, body)))

    def beat_encoded(self, data: bytes | None) -> None:
        self._pipe.send_bytes(b"h")
        self._pipe.send_bytes(data or b"")
