"""Messages, outcomes and questions for the runs of a worker: read from the store, and handed to them."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pledger import errors
from pledger.engine.interrupts import is_interrupt
from pledger.engine.leaving import AGAIN_S
from pledger.engine.loading import take_message, take_outcome
from pledger.engine.task_rows import encode_record
from pledger.history import failures

if TYPE_CHECKING:
    from pledger.engine.active_run import ActiveRun
    from pledger.engine.port.records import Mail, Request
    from pledger.engine.port.verbs import Store
    from pledger.engine.runs import Runs

logger = logging.getLogger("pledger.engine")

#: Runs whose mail is read by one question: more would keep the first of them waiting for the last.
MAIL_MAX: Final = 100


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
        for start in range(0, len(unread), MAIL_MAX):
            part = unread[start : start + MAIL_MAX]
            runs = [run for run in map(self._addressee, part) if run is not None]
            for run in runs:
                run.forget_delivered()
            try:
                mails = await self._store.read_mail([run.run_key for run in runs]) if runs else []
            except BaseException:
                self.unread.update(unread[start:])  # what was not read is looked at again
                raise
            found = {mail.run_key: mail for mail in mails}
            for run in runs:
                if (mail := found.get(run.run_key)) is not None and not run.gone:
                    self._take(run, mail)

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
            self._runs.when_at_rest(run, functools.partial(self._answer, run, request))

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
        task = self._loop.create_task(self._store.answer_request(request.request_key, answer, failure))
        self.answers.add(task)
        task.add_done_callback(functools.partial(self._answered, run.run_key))

    def _answered(self, run_key: int, task: asyncio.Task[None]) -> None:
        """An answer that the store could not take is given again: the question is still open there."""
        self.answers.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, errors.StoreUnavailableError):
            self._loop.call_later(AGAIN_S, self.arrived, run_key)
        elif error is not None:
            logger.error("the answer to a query could not be written", exc_info=error)
