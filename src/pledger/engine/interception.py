"""Interceptors of activities: what stands around the code of each attempt, in the worker's process.

Around the code of an async activity they run in its task, so that context variables which they set are seen by it.
Around that of a plain one they run in a task of the loop, which waits for the thread, whose context is theirs, or for
the process, which gets the arguments that the ledger has.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pledger.engine.attempt import running

if TYPE_CHECKING:
    from pledger.engine.attempt import Attempt
    from pledger.engine.executors import Done, Executors


@dataclass
class ExecuteActivityInput:
    """fn: the activity's function. headers: what the interceptors of its workflow gave it.

    `activity.info()` says the rest; of what it says nothing may be changed.
    """

    fn: Callable[..., Any]
    args: Sequence[Any]
    headers: Mapping[str, str]
    _run: Callable[[Sequence[Any]], Any] = field(repr=False)


class ActivityInboundInterceptor:
    """What reaches an activity: one for all attempts of a worker. Override what you need; go on with `self.next`."""

    def __init__(self, next: ActivityInboundInterceptor) -> None:  # noqa: A002 - the field's name for it
        self.next = next

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - as above
        """One attempt. What it raises, the attempt has failed with."""
        return await self.next.execute_activity(input)


class RootActivity(ActivityInboundInterceptor):
    """The innermost: runs the code."""

    def __init__(self) -> None: ...

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - as above
        return await input._run(input.args)  # noqa: SLF001 - its own


def start(
    inbound: ActivityInboundInterceptor,
    executors: Executors,
    attempt: Attempt,
    args: list[Any],
    done: Done,
    code: Callable[..., Any] | None,
) -> None:
    """As `Executors.start`, through the interceptors."""
    if attempt.definition.executor == "async":
        executors.start(attempt, args, done, functools.partial(_around_task, inbound, attempt, code))
    else:
        attempt.task = executors.new_task(_around_thread(inbound, executors, attempt, args, done, code))


def _given(attempt: Attempt, args: Sequence[Any], run: Callable[[Sequence[Any]], Any]) -> ExecuteActivityInput:
    return ExecuteActivityInput(attempt.definition.fn, args, attempt.command.headers or {}, run)


async def _around_task(
    inbound: ActivityInboundInterceptor,
    attempt: Attempt,
    code: Callable[..., Any] | None,
    *args: Any,
    **keywords: Any,
) -> Any:
    fn = code or attempt.definition.fn

    async def run(last: Sequence[Any]) -> Any:
        return await fn(*last, **keywords)

    return await inbound.execute_activity(_given(attempt, args, run))


async def _around_thread(
    inbound: ActivityInboundInterceptor,
    executors: Executors,
    attempt: Attempt,
    args: list[Any],
    done: Done,
    code: Callable[..., Any] | None,
) -> None:
    outer = attempt.task
    running.set(attempt)

    async def run(last: Sequence[Any]) -> Any:
        ended: asyncio.Future[Any] = attempt.loop.create_future()

        def tell(_: Attempt, result: Any, error: BaseException | None) -> None:
            if error is None:
                ended.set_result(result)
            else:
                ended.set_exception(error)

        executors.start(attempt, list(last), tell, code, context=contextvars.copy_context())
        attempt.task = outer or attempt.task  # it ends with the interceptors, not with the thread
        return await ended

    try:
        result = await inbound.execute_activity(_given(attempt, args, run))
    except BaseException as error:  # noqa: BLE001 - whatever the code or an interceptor has raised
        done(attempt, None, error)
    else:
        done(attempt, result, None)
