"""A batch of operations in one transaction: lock and read, decide, write, in two round trips; or all `at_once`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

import psycopg
from psycopg import errors as pg

from pledger.engine.port.answers import Answer, Reply
from pledger.engine.port.operations import Append, Operation, Send
from pledger.errors import PledgerError, StoreUnavailableError
from pledger.store.postgres import news
from pledger.store.postgres.arrays import array_parameters, pack
from pledger.store.postgres.at_once import AtOnce, at_once, last_transition
from pledger.store.postgres.failures import PASSING, is_of_an_operation, operation_failure
from pledger.store.postgres.found import Found, Needs
from pledger.store.postgres.links import all_answers, pipelined
from pledger.store.postgres.news import Interest
from pledger.store.postgres.rounds import Round, cut_into_rounds
from pledger.store.postgres.rules.every import decide, needs_of
from pledger.store.postgres.rules.families import Resolver
from pledger.store.postgres.writes import Writes

#: How often a transaction is done again that others were in the way of.
TRIES: Final = 10

CommitHook: TypeAlias = Callable[[Literal["before", "after"]], None]


class Doubt(NamedTuple):
    """A transaction of which nobody knows whether it was committed: its id, the mark that it would have left, and what
    would have been answered. begun_ms: when it began, by the server's clock."""

    transaction: str
    mark: int
    answers: list[Answer]
    begun_ms: int = 0


class StillRunningError(StoreUnavailableError):
    """A transaction in doubt may still be committed."""


class Committer:
    """Writes batches by one connection at a time. sql: the statements. channel: of the news, which bear the name of
    `interest`. hook: called with "before" and "after" around each COMMIT, for tests.

    doubt: of the newest transaction, when its COMMIT was sent and the connection was lost before it was answered.
    acknowledged: the mark of the newest one that was; acknowledged_ms: when that began, by the server's clock. Ours
    would not do: it stands still while a machine is suspended.
    newest_step: the newest transition that was written `at_once`, which leaves no mark.
    """

    def __init__(
        self, sql: Mapping[str, str], channel: str, interest: Interest, hook: CommitHook | None = None
    ) -> None:
        self._sql = sql
        self._arrays = {name: array_parameters(text) for name, text in sql.items()}
        self._channel = channel
        self._interest = interest
        self._hook = hook
        self.doubt: Doubt | None = None
        self._marks = itertools.count(1)
        self.acknowledged = 0
        self.acknowledged_ms = 0
        self.newest_step: Append | None = None
        self._transaction, self._begun_ms = "", 0

    async def resolve(self, connection: psycopg.AsyncConnection[Any], doubt: Doubt) -> list[Answer] | None:
        """What became of it: its answers when it was committed, None when it was not. Never a guess.

        What counts is the mark that it has left with all else. The id alone would not do: after a crash, or on a
        replica that has taken over, another transaction may have it.
        Raises StillRunningError while it may yet be committed.
        """
        try:
            cursor = await connection.execute("SELECT pg_xact_status($1::text::xid8)", [doubt.transaction])
            [(status,)] = await cursor.fetchall()
        except pg.InvalidParameterValue:
            status = None  # of a future that this server does not know
        if status == "in progress":
            raise StillRunningError(f"transaction {doubt.transaction} is still on its way: try again")
        found = await (await connection.execute(self._sql["read_mark"], [self._interest.name])).fetchall()
        if found != [(doubt.mark,)]:
            return None
        self._is_there(doubt)
        return doubt.answers

    def forget_acknowledged(self) -> None:
        """It was in a part that is lost, and the loss has been declared."""
        self.acknowledged = 0
        self.newest_step = None

    def _is_there(self, doubt: Doubt | None) -> None:
        self.doubt = None
        if doubt is not None:
            self.acknowledged, self.acknowledged_ms = doubt.mark, doubt.begun_ms

    async def write(self, connection: psycopg.AsyncConnection[Any], batch: Sequence[Operation]) -> list[Answer]:
        """The answers, in order. An operation that cannot be written gets its exception as its answer.

        Raises psycopg.Error when nothing of the batch was written, or nobody knows.
        """
        self.doubt = None
        together = at_once(batch)
        for attempt in range(TRIES):
            try:
                if together is not None:
                    return await self._write_at_once(connection, together)
                return await self._write(connection, batch)
            except Exception as error:
                passing = isinstance(error, PASSING)
                if not passing and not is_of_an_operation(error):
                    raise
                self.doubt = None  # the server has refused it
                await connection.execute("ROLLBACK")
                last = attempt == TRIES - 1
                if passing and last and not isinstance(error, pg.UniqueViolation):
                    raise
                if not passing or last:
                    break
        return await self._write_singly(connection, batch)

    async def _write_at_once(self, connection: psycopg.AsyncConnection[Any], batch: AtOnce) -> list[Answer]:
        statements = [*batch.statements(self._channel, self._interest.name)]
        self._tell("before")
        if len(statements) == 1:  # commits by itself
            [(name, parameters)] = statements
            cursor = await connection.execute(self._sql[name], self._bound(name, parameters), binary=True)
            rows = {name: await cursor.fetchall()}
        else:
            async with pipelined(connection) as pipeline:
                cursors = {
                    name: await connection.execute(self._sql[name], self._bound(name, parameters), binary=True)
                    for name, parameters in statements
                }
                if batch.ends:
                    await connection.execute(self._sql["notify"], self._news([news.OF_CLOSED]))
                await all_answers(pipeline)
                rows = {name: await cursor.fetchall() for name, cursor in cursors.items()}
        self._tell("after")
        answers = batch.answers(rows)
        lost = [operation for operation, answer in zip(batch.batch, answers, strict=True) if answer is None]
        if answers[-1] is not None:
            self.newest_step = last_transition(batch.batch[-1])
        if not lost:
            return cast("list[Answer]", answers)
        # Some of them may be there already.
        try:
            found = iter(await self._write(connection, lost))
        except BaseException:
            self.doubt = None  # it would be of these alone; who asks again finds all of them
            raise
        return [next(found) if answer is None else answer for answer in answers]

    async def _write(self, connection: psycopg.AsyncConnection[Any], batch: Sequence[Operation]) -> list[Answer]:
        answers: list[Answer] = [Reply.LOST] * len(batch)
        await self._resolve(connection, batch)
        rounds = cut_into_rounds(batch)
        begin = True
        if len(rounds) > 1:
            await self._lock(connection, batch)
            begin = False
        for number, each in enumerate(rounds):
            await self._write_round(connection, each, answers, begin=begin, commit=number == len(rounds) - 1)
            begin = False
        self._is_there(self.doubt)
        return answers

    async def _resolve(self, connection: psycopg.AsyncConnection[Any], batch: Sequence[Operation]) -> None:
        """Find whom of other runs the batch concerns. Mostly that is nobody, and nothing is asked."""
        resolver = Resolver(batch)
        for name, parameters in resolver.questions():
            cursor = await connection.execute(self._sql[name], self._bound(name, parameters), binary=True)
            resolver.take(name, await cursor.fetchall())

    async def _lock(self, connection: psycopg.AsyncConnection[Any], batch: Sequence[Operation]) -> None:
        """Begin, with all locks that the rounds to come will ask for: round by round, they would have no order."""
        async with pipelined(connection) as pipeline:
            begun = await self._begin(connection)
            for name, parameters in needs_of(batch).locks():
                await connection.execute(self._sql[name], self._bound(name, parameters))
            await all_answers(pipeline)
            [(self._transaction, self._begun_ms)] = await begun.fetchall()

    async def _begin(self, connection: psycopg.AsyncConnection[Any]) -> psycopg.AsyncCursor[Any]:
        """The cursor gives the transaction's id, and the server's time."""
        await connection.execute("BEGIN")
        return await connection.execute(self._sql["begun"])

    async def _write_round(
        self,
        connection: psycopg.AsyncConnection[Any],
        operations: Round,
        answers: list[Answer],
        *,
        begin: bool,
        commit: bool,
    ) -> None:
        needs = needs_of([each for _, each in operations])
        found = await self._read(connection, needs, begin=begin)
        if (ended := found.ended()) and (newest := await self._successors(connection, ended)):
            # The mailbox is the chain's, which goes on no further now that it is locked: the rows of those runs that go
            # on for them are to be locked too.
            found = await self._read(connection, needs.readdressed(newest), begin=False)
            found.readdress(newest)
        writes = Writes()
        for number, operation in operations:
            try:
                answers[number] = decide(operation, found, writes)
            except PledgerError as error:  # raised before anything was to be written
                answers[number] = error
        inserted = await self._carry_out(connection, writes, answers, commit=commit)
        for number, operation in operations:
            if isinstance(operation, Send) and not isinstance(answers[number], (Reply, Exception)):
                run = found.addressees[operation.run_key]
                if (run.chain_key, operation.message_id) not in inserted:
                    answers[number] = Reply.DUPLICATE  # somebody else has sent it at this moment

    async def _successors(self, connection: psycopg.AsyncConnection[Any], run_keys: set[int]) -> dict[int, int]:
        """The newest runs of the chains that these are of, where those are others."""
        parameters = self._bound("find_successors", [sorted(run_keys)])
        cursor = await connection.execute(self._sql["find_successors"], parameters)
        return {old: newest for old, newest in await cursor.fetchall() if newest != old}

    async def _read(self, connection: psycopg.AsyncConnection[Any], needs: Needs, *, begin: bool) -> Found:
        found = Found()
        async with pipelined(connection) as pipeline:
            begun = await self._begin(connection) if begin else None
            cursors = [
                (name, await connection.execute(self._sql[name], self._bound(name, parameters), binary=True))
                for name, parameters in (*needs.locks(), *needs.reads())
            ]
            await all_answers(pipeline)
            for name, cursor in cursors:
                found.take(name, await cursor.fetchall())
            if begun is not None:
                [(self._transaction, self._begun_ms)] = await begun.fetchall()
        return found

    async def _carry_out(
        self, connection: psycopg.AsyncConnection[Any], writes: Writes, answers: list[Answer], *, commit: bool
    ) -> set[tuple[int, str]]:
        """The (chain_key, message_id) of the messages that were new."""
        inserted: set[tuple[int, str]] = set()
        if commit:
            self._tell("before")
        async with pipelined(connection) as pipeline:
            cursors = [
                (name, await connection.execute(self._sql[name], self._bound(name, parameters)))
                for name, parameters in writes.statements(self._channel, self._interest.name)
            ]
            if writes.said:
                await connection.execute(self._sql["notify"], self._news(writes.said))
            if commit:
                await self._commit(connection, answers)
            await all_answers(pipeline)
            for name, cursor in cursors:
                if name == "insert_messages":
                    inserted = {(chain_key, message_id) for chain_key, message_id in await cursor.fetchall()}
        if commit:
            self._tell("after")
        return inserted

    async def _commit(self, connection: psycopg.AsyncConnection[Any], answers: list[Answer]) -> None:
        mark = next(self._marks)
        await connection.execute(self._sql["leave_mark"], [self._interest.name, mark])
        self.doubt = Doubt(self._transaction, mark, answers, self._begun_ms)
        await connection.execute("COMMIT")

    async def _write_singly(self, connection: psycopg.AsyncConnection[Any], batch: Sequence[Operation]) -> list[Answer]:
        """Each operation with a savepoint to fall back to: what they cost is paid only where one is at fault."""
        answers: list[Answer] = [Reply.LOST] * len(batch)
        await self._resolve(connection, batch)
        await self._lock(connection, batch)
        for number, operation in enumerate(batch):
            try:
                await self._write_guarded(connection, number, operation, answers)
            except pg.UniqueViolation:
                # A start that has just lost a race finds the other one's run now.
                try:
                    await self._write_guarded(connection, number, operation, answers)
                except pg.UniqueViolation as error:
                    answers[number] = operation_failure(error, operation)
        self._tell("before")
        await self._commit(connection, answers)
        self._is_there(self.doubt)
        self._tell("after")
        return answers

    async def _write_guarded(
        self, connection: psycopg.AsyncConnection[Any], number: int, operation: Operation, answers: list[Answer]
    ) -> None:
        await connection.execute("SAVEPOINT operation")
        try:
            await self._write_round(connection, [(number, operation)], answers, begin=False, commit=False)
        except Exception as error:
            if not is_of_an_operation(error):
                raise
            await connection.execute("ROLLBACK TO operation")
            if isinstance(error, pg.UniqueViolation):
                raise
            answers[number] = operation_failure(error, operation)
        await connection.execute("RELEASE operation")

    def _bound(self, name: str, parameters: Sequence[Any]) -> list[Any]:
        arrays = self._arrays[name]
        return [pack(arrays[at], each) if at in arrays else each for at, each in enumerate(parameters)]

    def _news(self, said: Iterable[str]) -> list[Any]:
        return [self._channel, self._interest.signed(said)]

    def _tell(self, phase: Literal["before", "after"]) -> None:
        if self._hook is not None:
            self._hook(phase)
