"""The store as the engine and the clients have it: they write and read plain payloads, it keeps sealed ones.

Histories are sealed where they are built, since their checksums are over what is kept; here they are opened. All else
that carries payloads (starts, messages, task rows, heartbeats, lines of the attempt log, questions) is sealed and
opened here. What needs neither goes through untouched, and costs a look.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from msgspec.structs import replace

from pledger import errors
from pledger.engine.port.operations import Append, FinishTask, StartRun
from pledger.engine.port.records import Mail
from pledger.engine.sealed_records import Pass, request_place
from pledger.engine.vault import Sealing
from pledger.history import transition
from pledger.history.sealing import MARK, NOWHERE, Place, is_sealed

if TYPE_CHECKING:
    from pledger.engine.port.answers import Answer
    from pledger.engine.port.filters import Labels
    from pledger.engine.port.lanes import Bounds, Claim, Served
    from pledger.engine.port.operations import Operation
    from pledger.engine.port.records import (
        AttemptRecord,
        Message,
        Request,
        RunRow,
        SessionRow,
        StoredRun,
        TaskRow,
    )
    from pledger.engine.port.streams import StreamPage
    from pledger.engine.port.verbs import Store
    from pledger.engine.vault import Vault
    from pledger.history.transition import StoredTransition

logger = logging.getLogger("pledger.engine")

R = TypeVar("R")

#: Runs whose ids are remembered, for the places of their payloads.
PLACES_MAX: Final = 10_000
#: Questions whose places are remembered until they are answered.
QUESTIONS_MAX: Final = 10_000
#: Before an activity is claimed again whose arguments could not be opened: another worker may have the key.
AGAIN_MS: Final = 30_000


def sealed_store(store: Store, vault: Vault) -> Store:
    return cast("Store", SealedStore(store, vault))


class SealedStore:
    """store: whatever is not written here is its."""

    def __init__(self, store: Store, vault: Vault) -> None:
        self._inner = store
        self._vault = vault
        self._places: OrderedDict[int, Place] = OrderedDict()
        self._questions: OrderedDict[int, Place] = OrderedDict()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    # Writing ----------------------------------------------------------------------------------------------------------

    def commit(self, batch: Sequence[Operation]) -> asyncio.Future[list[Answer]]:
        for operation in batch:
            # A step that is only a step has been sealed already, and has no pieces that are new.
            if (
                type(operation) is not Append
                or operation.tasks
                or operation.attempts
                or operation.unwritten
                or operation.pieces
                or operation.successor
                or (
                    self._vault.has_codecs
                    and (operation.posts or operation.report is not None or operation.memo or operation.published)
                )
            ):
                break
        else:
            return self._inner.commit(batch)
        if self._vault.has_codecs:
            return asyncio.get_running_loop().create_task(self._commit_through_codecs(batch))
        return self._commit([self._sealed(operation, NOWHERE) for operation in batch])

    def _commit(self, batch: Sequence[Operation]) -> asyncio.Future[list[Answer]]:
        future = self._inner.commit(batch)
        if any(operation.pieces for operation in batch):
            if future.done():
                self._settled(batch, future)
            else:
                future.add_done_callback(lambda done: self._settled(batch, done))
        return future

    async def _commit_through_codecs(self, batch: Sequence[Operation]) -> list[Answer]:
        sealed: list[Operation] = []
        refused: dict[int, Answer] = {}
        for number, operation in enumerate(batch):
            try:
                sealed.append(self._sealed(operation, await self._place_of(operation)))
            except errors.StoreUnavailableError:
                raise
            except errors.PledgerError as error:
                refused[number] = error
        answers = iter(await self._commit(sealed) if sealed else ())
        return [refused[number] if number in refused else next(answers) for number in range(len(batch))]

    def _sealed(self, operation: Operation, place: Place) -> Operation:
        vault = self._vault
        work = Sealing(vault)
        sealed = Pass(work.seal, lambda data: len(data) >= vault.least).operation(operation, place)
        if pieces := work.pieces():
            sealed = replace(sealed, pieces=(*operation.pieces, *pieces))
        if vault.has_codecs:
            # Without pieces: they would be those of the sender, and may be gone before the other run has read them.
            whole = Pass(work.seal_whole, lambda _: True)
            sealed = whole.memos(whole.for_others(sealed, place), place)
        return sealed

    def _settled(self, batch: Sequence[Operation], done: asyncio.Future[list[Answer]]) -> None:
        if done.cancelled() or done.exception() is not None:
            self._vault.forget_written()
        else:
            self._vault.settled(batch, done.result())

    async def join(self, connection: object, operation: StartRun) -> Answer:
        # Without pieces: they would have to be written by a connection that is not the store's.
        return await self._inner.join(connection, self._whole(operation, NOWHERE))

    def _whole(self, operation: Any, place: Place) -> Any:
        if not self._vault.has_codecs:
            return operation
        whole = Pass(Sealing(self._vault).seal_whole, lambda _: True)
        return whole.memos(whole.operation(operation, place), place)

    def transaction(self, url: str | None = None, *, open_max_s: float | None = None) -> Any:
        inner = self._inner.transaction(url, open_max_s=open_max_s)
        return _Transaction(inner, self._known_whole) if self._vault.has_codecs else inner

    def blocking_transaction(self, url: str | None = None, *, open_max_s: float | None = None) -> Any:
        inner = self._inner.blocking_transaction(url, open_max_s=open_max_s)
        return _Transaction(inner, self._known_whole) if self._vault.has_codecs else inner

    def _known_whole(self, finish: FinishTask) -> FinishTask:
        whole: FinishTask = self._whole(finish, self._places[finish.run_key])
        return whole

    async def ask(self, run_key: int, kind: str, name: str, body: bytes, expires_ms: int) -> int:
        if self._vault.has_codecs:
            place = await self._place(run_key)
            body = self._vault.through_codecs(body, place.at(f"{kind} {name}"))
        return await self._inner.ask(run_key, kind, name, body, expires_ms)

    async def answer_request(
        self, request_key: int, answer: bytes | None, failure: bytes | None, fence: int | None = None
    ) -> None:
        if self._vault.has_codecs and (at := self._questions.get(request_key)) is not None:
            whole = Pass(Sealing(self._vault).seal_whole, lambda _: True)
            answer = None if answer is None else whole.answer(answer, at)
            failure = None if failure is None else whole.failed_answer(failure, at)
        await self._inner.answer_request(request_key, answer, failure, fence)

    async def open_session(
        self, identity: str, namespace: str, task_queue: str, code: str, lease_ms: int
    ) -> SessionRow:
        self._vault.forget_written()
        return await self._inner.open_session(identity, namespace, task_queue, code, lease_ms)

    # Reading ----------------------------------------------------------------------------------------------------------

    async def read_history(self, run_key: int, after_event: int = 0, limit: int = 1000) -> list[StoredTransition]:
        found = await self._inner.read_history(run_key, after_event, limit)
        try:
            return await self._histories(run_key, found)
        except (errors.CorruptHistoryError, errors.CodecError):
            # What stands before it can be read.
            return await self._before_the_first_bad(run_key, found)

    async def read_last_transitions(self, run_key: int) -> list[StoredTransition]:
        return await self._histories(run_key, await self._inner.read_last_transitions(run_key))

    async def _histories(self, run_key: int, found: list[StoredTransition]) -> list[StoredTransition]:
        if not any(MARK in stored.body for stored in found):
            return found
        origin = await self._origin(run_key)
        return await self._opened(found, lambda stored, using: _transition(stored, using, origin(stored)))

    async def _before_the_first_bad(self, run_key: int, found: list[StoredTransition]) -> list[StoredTransition]:
        opened: list[StoredTransition] = []
        for stored in found:
            try:
                opened += await self._histories(run_key, [stored])
            except (errors.CorruptHistoryError, errors.CodecError) as error:
                if not opened:
                    if isinstance(error, errors.CodecError):
                        error.unopened = stored  # whoever knows the checksum before it can tell whether it is damaged
                    raise
                break
        return opened

    async def read_stored_runs(self, run_keys: Sequence[int], limit: int) -> list[StoredRun]:
        found = await self._inner.read_stored_runs(run_keys, limit)
        places = {run.run_key: await self._place(run.run_key) for run in found} if self._vault.has_codecs else {}
        origins = {run.run_key: await self._origin(run.run_key) for run in found}

        def run(stored: StoredRun, using: Pass) -> StoredRun:
            place, origin = places.get(stored.run_key, NOWHERE), origins[stored.run_key]
            transitions = tuple(_transition(each, using, origin(each)) for each in stored.transitions)
            messages = tuple(using.message(each, place) for each in stored.messages)
            return replace(
                stored, transitions=transitions, messages=messages, tasks=tuple(map(using.task, stored.tasks))
            )

        try:
            return await self._opened(found, run)
        except errors.CodecError:
            for stored in found:
                _check_whole(stored)  # damage explains it better than a key
            raise

    async def read_mail(self, run_keys: Sequence[int]) -> list[Mail]:
        found = await self._inner.read_mail(run_keys)
        if not found:
            return found
        places = {mail.run_key: await self._place(mail.run_key) for mail in found} if self._vault.has_codecs else {}
        if places:
            self._remember_questions(found, places)

        def mail(one: Mail, using: Pass) -> Mail:
            place = places.get(one.run_key, NOWHERE)
            return replace(
                one,
                messages=tuple(using.message(each, place) for each in one.messages),
                outcomes=tuple(map(using.task, one.outcomes)),
                requests=tuple(using.request(each, place) for each in one.requests),
            )

        # What cannot be opened is left as it is: whoever takes it in parks its run alone.
        return await self._opened(found, mail, strict=False)

    async def read_inbox(self, chain_key: int) -> list[Message]:
        return await self._messages(chain_key, await self._inner.read_inbox(chain_key))

    async def read_undelivered(self, chain_key: int) -> list[Message]:
        return await self._messages(chain_key, await self._inner.read_undelivered(chain_key))

    async def _messages(self, chain_key: int, found: list[Message]) -> list[Message]:
        if not any(MARK in message.body for message in found):
            return found
        place = await self._place_of_chain(chain_key)
        return await self._opened(found, lambda message, using: using.message(message, place), strict=False)

    async def read_labels(self, run_keys: Sequence[int]) -> dict[int, Labels]:
        found = await self._inner.read_labels(run_keys)
        sealed = [run_key for run_key, labels in found.items() if labels.memo is not None and is_sealed(labels.memo)]
        places = {run_key: await self._place(run_key) for run_key in sealed}

        def opened(run_key: int, using: Pass) -> int:
            labels = found[run_key]
            assert labels.memo is not None
            found[run_key] = replace(labels, memo=using.memo(labels.memo, places[run_key]))
            return run_key

        await self._opened(sealed, opened, strict=False)
        # One that cannot be opened is shown as none: the list is of the others too.
        return {
            run_key: replace(labels, memo=None) if labels.memo is not None and is_sealed(labels.memo) else labels
            for run_key, labels in found.items()
        }

    async def read_stream(self, chain_key: int, topic: str, position: int) -> StreamPage:
        page = await self._inner.read_stream(chain_key, topic, position)
        if not any(MARK in value.body for value in page.values):
            return page
        place = await self._place_of_chain(chain_key)
        values = await self._opened(list(page.values), lambda value, using: using.stream_value(value, place, topic))
        return replace(page, values=tuple(values))

    async def read_attempts(self, run_key: int) -> list[AttemptRecord]:
        found = await self._inner.read_attempts(run_key)
        place = await self._place(run_key)
        return await self._opened(found, lambda record, using: using.attempt(record, place), strict=False)

    async def read_tasks(self, run_key: int) -> list[TaskRow]:
        return await self._tasks(await self._inner.read_tasks(run_key))

    async def expired_tasks(self, namespace: str, now_ms: int, limit: int) -> list[TaskRow]:
        return await self._tasks(await self._inner.expired_tasks(namespace, now_ms, limit))

    async def owned_tasks(self, session_key: int) -> list[TaskRow]:
        return await self._tasks(await self._inner.owned_tasks(session_key))

    async def _tasks(self, found: list[TaskRow]) -> list[TaskRow]:
        return await self._opened(found, lambda row, using: using.task(row), strict=False) if found else found

    async def take_answer(self, request_key: int) -> Request | None:
        found = await self._inner.take_answer(request_key)
        if found is None or not self._vault.has_codecs:
            return found
        place = await self._place(found.run_key)
        [opened] = await self._opened([found], lambda request, using: using.request(request, place))
        return opened

    # Claims -----------------------------------------------------------------------------------------------------------

    async def claim_tasks(self, session_key: int, now_ms: int, served: Served, room: int) -> list[TaskRow]:
        return await self._claimed(await self._inner.claim_tasks(session_key, now_ms, served, room), now_ms)

    async def claim_queued(self, session_key: int, now_ms: int, served: Served, room: int, bounds: Bounds) -> Claim:
        claim = await self._inner.claim_queued(session_key, now_ms, served, room, bounds)
        return replace(claim, tasks=await self._claimed(claim.tasks, now_ms)) if claim.tasks else claim

    async def claim_lifted_tasks(
        self, session_key: int, now_ms: int, served: Served, room: int, bounds: Bounds
    ) -> Claim:
        claim = await self._inner.claim_lifted_tasks(session_key, now_ms, served, room, bounds)
        return replace(claim, tasks=await self._claimed(claim.tasks, now_ms)) if claim.tasks else claim

    async def _claimed(self, tasks: list[TaskRow], now_ms: int) -> list[TaskRow]:
        """In plain. What cannot be opened here goes back into the queue for a while, as it was."""
        for task in tasks:
            self._remember(task.run_key, Place(task.namespace, task.workflow_id, task.run_id, ""))
        opened: list[TaskRow] = []
        back: list[FinishTask] = []
        for task in await self._tasks(tasks):
            if MARK not in task.command and MARK not in (task.heartbeat or b""):
                opened.append(task)
                continue
            assert task.owner is not None, "it was claimed"
            queued = replace(task, state="queued", owner=None, started_ms=None, due_ms=now_ms + AGAIN_MS)
            back.append(FinishTask(task.run_key, task.event_id, task.attempt, task.owner, None, queued))
            logger.error(
                "activity %s of workflow %r (run %s) cannot begin here: its arguments cannot be opened",
                task.activity_type,
                task.workflow_id,
                task.run_id,
            )
        if back:
            await self._inner.commit(back)
        return opened

    # Parts ------------------------------------------------------------------------------------------------------------

    async def _opened(self, records: list[R], one: Callable[[R, Pass], R], *, strict: bool = True) -> list[R]:
        """strict: raise what one cannot be opened for; else it is left as it is."""
        wanted: dict[tuple[bytes, Place], None] = {}

        def look(data: bytes, place: Place) -> bytes:
            if is_sealed(data):
                wanted[data, place] = None
            return data

        for record in records:
            one(record, Pass(look, _may_be_sealed))
        if not wanted:
            return records
        found = await self._vault.open_all(wanted, self._inner.read_pieces)

        def put(data: bytes, place: Place) -> bytes:
            opened = found.get((data, place), data)
            if isinstance(opened, bytes):
                return opened
            if strict:
                raise opened
            logger.error("a payload of workflow %r cannot be opened: %s", place.workflow_id, opened)
            return data

        return [one(record, Pass(put, _may_be_sealed)) for record in records]

    async def _place_of(self, operation: Operation) -> Place:
        run_key = getattr(operation, "run_key", None)
        if run_key is None and (attempts := getattr(operation, "attempts", ())):
            run_key = attempts[0].run_key
        return await self._place(run_key) if run_key else NOWHERE

    async def _place(self, run_key: int) -> Place:
        if not self._vault.has_codecs:
            return NOWHERE
        place = self._places.get(run_key)
        return self._remember(run_key, _place_of(await self._inner.read_run(run_key))) if place is None else place

    async def _place_of_chain(self, chain_key: int) -> Place:
        """Of one of its runs."""
        if not self._vault.has_codecs:
            return NOWHERE
        [row, *_] = await self._inner.chain_runs([chain_key])
        return _place_of(row)

    async def _origin(self, run_key: int) -> Callable[[StoredTransition], Place]:
        """Where each transition of the run was written: what a reset has taken over was of another one."""
        if not self._vault.has_codecs:
            return _nowhere
        spans: list[tuple[int, Place]] = []
        kept: int | None = None
        place = await self._place(run_key)
        while link := next((each for each in await self._inner.read_resets(run_key) if each.run_key == run_key), None):
            kept = link.kept if kept is None else min(kept, link.kept)
            run_key = link.base_key
            spans.append((kept, await self._place(run_key)))

        def origin(stored: StoredTransition) -> Place:
            # The last one is of the run whose it was first.
            return next((at for kept, at in reversed(spans) if stored.first_event_id <= kept), place)

        return origin

    def _remember(self, run_key: int, place: Place) -> Place:
        self._places[run_key] = place
        if len(self._places) > PLACES_MAX:
            self._places.popitem(last=False)
        return place

    def _remember_questions(self, mails: Sequence[Mail], places: dict[int, Place]) -> None:
        """Of what they are about: an answer is told by the key of its question alone."""
        for mail in mails:
            for request in mail.requests:
                self._questions[request.request_key] = request_place(request, places[mail.run_key])
        while len(self._questions) > QUESTIONS_MAX:
            self._questions.popitem(last=False)


class _Transaction:
    """A transaction whose attempt ends with a sealed outcome."""

    def __init__(self, inner: Any, seal: Callable[[FinishTask], FinishTask]) -> None:
        self._inner = inner
        self._seal = seal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def finish(self, finish: FinishTask) -> Any:
        return self._inner.finish(self._seal(finish))


def _check_whole(run: StoredRun) -> None:
    """Of a run as it is kept, from its first transition on. Raises CorruptHistoryError."""
    head = transition.CHAIN_START
    for stored in run.transitions:
        head = transition.checksum(head, stored.first_event_id, stored.body)
        if head != stored.checksum:
            event_id = stored.first_event_id
            raise errors.CorruptHistoryError(
                f"the history is damaged at event {event_id}: its checksum does not fit its content. The run is parked "
                "and nothing is changed; restore the file from a backup",
                event_id=event_id,
            )


def _nowhere(_: StoredTransition) -> Place:
    return NOWHERE


def _may_be_sealed(data: bytes) -> bool:
    return MARK in data


def _place_of(row: RunRow) -> Place:
    return Place(row.namespace, row.workflow_id, row.run_id, "")


def _transition(stored: StoredTransition, using: Pass, place: Place) -> StoredTransition:
    try:
        return using.transition(stored, place)
    except errors.CorruptHistoryError as error:
        raise errors.CorruptHistoryError(
            f"a payload from event {stored.first_event_id} on: {error}",
            run_id=place.run_id,
            event_id=stored.first_event_id,
        ) from error
