"""Messages, outcomes and questions for the runs of a worker: read from the store, and handed to them."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from pledger import errors
from pledger.engine.interrupts import is_interrupt
from pledger.engine.leaving import AGAIN_S
from pledger.engine.loading import take_message, take_outcome
from pledger.engine.task_rows import encode_record
from pledger.engine.update_rows import UPDATE, answer_of, read_question
from pledger.engine.updating import Answer, Ask, Told
from pledger.history import failures

if TYPE_CHECKING:
    from pledger.engine.active_run import ActiveRun
    from pledger.engine.port.records import Mail, Request
    from pledger.engine.port.verbs import Store
    from pledger.engine.runs import Runs

logger = logging.getLogger("pledger.engine")

#: Runs whose mail is read by one question: more would keep the first of them waiting for the last.
MAIL_MAX: Final = 100


#: Questions whose answers are remembered, in case that they are read once more: those that a process answers in the
#: time for which one that was read before its answer may be on its way.
ANSWERED_MAX: Final = 10_000


class Answered(NamedTuple):
    """What an update was answered, and by whom: it is not judged a second time, whatever becomes of the answer."""

    answer: bytes | None
    failure: bytes | None
    fence: int


class MailReader:
    """unread: the runs that have mail. answers: those that are on their way to the store. wake: called when there is
    something to read."""

    def __init__(self, store: Store, runs: Runs, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
        self.unread: set[int] = set()
        self.answers: set[asyncio.Task[None]] = set()
        self._store = store
        self._runs = runs
        self._loop = loop
        self._wake = wake
        self._early: set[int] = set()
        self._reading: set[int] = set()
        self._behind: dict[int, list[Callable[[], None]]] = {}
        self._answered: dict[int, Answered] = {}

    def behind_mail(self, run_key: int, ask: Callable[[], None]) -> None:
        """Call it behind all that has come for the run before: whoever sends and then asks is to find what was sent."""
        if run_key in self.unread or run_key in self._reading or run_key in self._behind:
            self._behind.setdefault(run_key, []).append(ask)
        else:
            ask()

    def stop(self) -> None:
        """Nothing is read any more. Whoever is behind something is not left waiting for it."""
        behind, self._behind = self._behind, {}
        for asks in behind.values():
            for ask in asks:
                ask()

    def arrived(self, run_key: int) -> None:
        """A run of this worker has a message, an outcome or a question."""
        self.unread.add(run_key)
        self._wake()

    def run_born(self, run_key: int) -> None:
        """A run that was started here is known here: look at the mail that was faster than the news of its birth."""
        if self._early:
            if run_key in self._early:
                self.arrived(run_key)
            if self._runs.births.in_flight:
                self._early.discard(run_key)
            else:
                self._early.clear()

    async def read(self) -> None:
        """Of many runs at a time: a fleet's worker reads all day long, and each question is a round trip.

        What comes meanwhile is for the next round: mail without end must not keep the worker from all else.
        """
        unread, self.unread = list(self.unread), set()
        self._reading = set(unread)
        for start in range(0, len(unread), MAIL_MAX):
            part = unread[start : start + MAIL_MAX]
            runs = [run for run in map(self._addressee, part) if run is not None]
            for run in runs:
                run.forget_delivered()
            try:
                mails = await self._store.read_mail([run.run_key for run in runs]) if runs else []
            except BaseException:
                self.unread.update(unread[start:])  # what was not read is looked at again
                self._reading = set()
                raise
            self._reading.difference_update(part)
            found = {mail.run_key: mail for mail in mails}
            for run in runs:
                if (mail := found.get(run.run_key)) is not None and not run.gone:
                    self._take(run, mail)
            if self._behind:
                for run_key in part:
                    for ask in self._behind.pop(run_key, ()):
                        ask()

    def _addressee(self, run_key: int) -> ActiveRun | None:
        run = self._runs.active.get(run_key)
        if run is not None and not run.gone:
            return run
        if self._runs.births.in_flight:
            self._early.add(run_key)
        return None

    def _take(self, run: ActiveRun, mail: Mail) -> None:
        try:
            for message in mail.messages:
                take_message(run, message)
            for task in mail.outcomes:
                if run.machine.awaits(task.event_id) and -task.event_id not in run.origins:
                    take_outcome(run, task)
        except (errors.CorruptHistoryError, errors.CodecError) as error:
            self._runs.when_at_rest(run, functools.partial(self._park, run, error))
        if run.inputs:
            self._runs.make_ready(run)
        for request in mail.requests:
            if request.kind == UPDATE:
                self._take_update(run, request)
            else:
                self._runs.when_at_rest(run, functools.partial(self._answer, run, request))

    def _take_update(self, run: ActiveRun, request: Request) -> None:
        known = self._answered.get(request.request_key)
        if known is not None and known.fence == run.fence:
            self._write_answer(run, request, known)  # the answer may not have come through, or the question came late
            return
        if any(ask.request_key == request.request_key for ask in run.asks):
            return
        try:
            update = read_question(request)
        except msgspec.MsgspecError as error:
            self._tell(
                run, request, errors.UsageError(f"the update that was sent to {run.identity} is damaged: {error}")
            )
            return
        tell = functools.partial(self._tell, run, request)
        self._runs.updates.ask(run, Ask(update, "accepted", tell, request.request_key))

    def _tell(self, run: ActiveRun, request: Request, told: Answer) -> None:
        if told is None:
            return  # as below
        answer = failure = None
        if isinstance(told, Told):
            answer = answer_of(Told(told.first_event_id))  # what came of it is read in the history
        else:
            failure = encode_record(failures.from_exception(told))
        known = self._answered[request.request_key] = Answered(answer, failure, run.fence)
        while len(self._answered) > ANSWERED_MAX:
            del self._answered[next(iter(self._answered))]
        self._write_answer(run, request, known)

    def _park(self, run: ActiveRun, error: errors.StoreError) -> None:
        if not run.gone:
            self._runs.leaving.block(run, error)

    def _answer(self, run: ActiveRun, request: Request) -> None:
        if run.gone:
            return  # whoever has the run next finds the question still open
        answer = failure = None
        try:
            answer = self._runs.query(run, request.name, request.body)
        except BaseException as error:  # whatever it is, the one who asks must not be left waiting
            if is_interrupt(error):
                raise
            failure = encode_record(failures.from_exception(error))
        self._write_answer(run, request, Answered(answer, failure, run.fence))

    def _write_answer(self, run: ActiveRun, request: Request, known: Answered) -> None:
        # Of a query it does not matter who has answered it; and it costs less to write.
        fence = known.fence if request.kind == UPDATE else None
        write = self._store.answer_request(request.request_key, known.answer, known.failure, fence)
        task = self._loop.create_task(write)
        self.answers.add(task)
        task.add_done_callback(functools.partial(self._written, run.run_key))

    def _written(self, run_key: int, task: asyncio.Task[None]) -> None:
        """An answer that the store could not take is given again: the question is still open there."""
        self.answers.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, errors.StoreUnavailableError):
            self._loop.call_later(AGAIN_S, self.arrived, run_key)
        elif error is not None:
            logger.error("the answer to a question could not be written", exc_info=error)
