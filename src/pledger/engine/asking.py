"""A client asks a run: the worker of its own process that holds it, or, through the store, another one."""

from __future__ import annotations

import asyncio
import builtins
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from pledger import errors
from pledger.engine import blocks, pausing
from pledger.engine.kept import in_words
from pledger.engine.port.records import Request, RunRow
from pledger.history import failures
from pledger.history.times import milliseconds, utc

if TYPE_CHECKING:
    from pledger.engine.connection import Connection
    from pledger.engine.engine import Engine


class Question(NamedTuple):
    """What goes through the store: see `Requests.ask`. what: in words. afterwards: what is to be known where nobody has
    answered in time."""

    kind: str
    name: str
    body: bytes
    what: str
    afterwards: str = ""


async def ask(connection: Connection, row: RunRow, query: str, args: bytes, timeout: timedelta) -> bytes | None:
    """The answer as JSON, or None where the run has closed meanwhile.

    row: of the run, which is open. Raises UnknownQueryError and QueryFailedError, RunBlockedError, and NoWorkerError
    where nobody has answered in time, or nobody can.
    """
    if row.owner is None:
        await refuse_paused(connection, row, "answers no query")
    engine = connection.owner_of(row.run_key)
    if engine is not None:
        return await _ask_here(engine, row, query, args, timeout)
    answered = await through_store(connection, row, Question("query", query, args, f"the query {query!r}"), timeout)
    if answered is None:
        return None
    if answered.failure is not None:
        raise refusal(failures.decode(answered.failure))
    return answered.answer or b"null"


async def through_store(connection: Connection, row: RunRow, question: Question, timeout: timedelta) -> Request | None:
    """The answered question, or None where the run has closed meanwhile. Raises RunBlockedError and NoWorkerError."""
    store = connection.store
    now_ms = await connection.now_ms()
    expires_ms = now_ms + milliseconds(timeout)
    request_key = await store.ask(row.run_key, question.kind, question.name, question.body, expires_ms)
    for each in connection.engines:
        each.changed()
    delay = 0.002
    while await connection.now_ms() < expires_ms:
        await asyncio.sleep(delay)
        delay = min(0.05, delay * 1.5)
        answered = await store.take_answer(request_key)
        if answered is not None:
            return answered
        if (await store.read_run(row.run_key)).status != "running":
            return None  # it closed meanwhile: nobody will answer, and the caller says so
    await store.drop_requests(expires_ms + 1)
    current = await store.read_run(row.run_key)
    if current.blocked is not None:
        raise blocks.to_error(current.blocked, row.workflow_id, row.workflow_type, row.run_id)
    where = "" if row.namespace == "default" else f" in namespace {row.namespace!r}"
    raise errors.NoWorkerError(
        f"no worker answered {question.what} of {in_words(row)} within {timeout.total_seconds():g} s."
        f"{question.afterwards} Start one for task queue {row.task_queue!r}{where} that knows {row.workflow_type!r}: "
        "pledger worker your_module"
    )


async def _ask_here(engine: Engine, row: RunRow, query: str, args: bytes, timeout: timedelta) -> bytes | None:
    try:
        async with asyncio.timeout(timeout.total_seconds()):
            return await engine.query(row.run_key, query, args)
    except builtins.TimeoutError:
        raise errors.NoWorkerError(
            f"{in_words(row)} is held by a worker of this process, and what it has done was not durable within "
            f"{timeout.total_seconds():g} s: the query {query!r} is answered only then. The store is slow or "
            "cannot be reached, which the log of pledger.engine says"
        ) from None


async def refuse_paused(connection: Connection, row: RunRow, does: str) -> None:
    """Nobody holds a paused run, so nobody can answer for it. does: what it does not do, in words."""
    found = pausing.pauses_of(await connection.store.read_pauses(row.namespace), row)
    if held := next((each for each in found if each.rate is None), None):
        what = "it" if held.scope.kind == "run" else f"{held.scope.kind} {held.scope.name!r}"
        raise errors.NoWorkerError(
            f"{in_words(row)} {does}: {what} is paused by {held.paused_by} since "
            f"{utc(held.paused_ms):%Y-%m-%d %H:%M:%S} UTC ({held.reason or 'no reason was given'}). Look at it "
            f"with handle.describe(), or resume first"
        )


def refusal(failure: failures.Failure) -> Exception:
    """Why another process did not answer: of the class that it would have here."""
    cls = getattr(errors, failure.type, None)
    if isinstance(cls, type) and issubclass(cls, errors.PledgerError) and not issubclass(cls, errors.FailureError):
        return cls(failure.message)
    return failures.to_exception(failure)
