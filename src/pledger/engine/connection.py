"""One process's connection to a ledger: its store, its committer, its workers, and the clients that wait for runs."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from pledger.engine.committer import Committer
from pledger.engine.following import Followers
from pledger.engine.keyring import Keyring
from pledger.engine.outage import Outage, Subject
from pledger.engine.port.answers import Answer, Sent
from pledger.engine.port.operations import Send
from pledger.engine.sealed_store import sealed_store
from pledger.engine.session import LedgerClock
from pledger.engine.vault import Vault
from pledger.errors import StoreError
from pledger.history import payloads

if TYPE_CHECKING:
    from pledger.engine.engine import Engine
    from pledger.engine.meter import Meter
    from pledger.engine.port.records import RunStatus
    from pledger.engine.port.verbs import Store
    from pledger.history.events import Command
    from pledger.history.sealing import PayloadCodec

logger = logging.getLogger("pledger.engine")

#: How long a wait for changes may take before the store is asked all the same: a hint may have been missed.
CHECK_S: Final = 1.0
#: A client without a worker has no heartbeat to sample the store's clock; it asks again after this long.
CLOCK_AGE_S: Final = 5.0


class Connection:
    """Shared by a client and the workers on it.

    payload_bytes_max: of one value that they write; a worker may have a bound of its own.
    token_keys: secrets that sign the tokens of attempts, in place of those of the ledger; the first one signs.
    entropy: gives random bytes, for run ids and seeds. heart_arguments: what a new heart of this process's kind takes.
    meter: told what is written, and of the workers; None costs nothing.
    """

    def __init__(
        self,
        store: Store,
        *,
        namespace: str = "default",
        payload_bytes_max: int = payloads.PAYLOAD_BYTES_MAX,
        token_keys: Sequence[bytes] = (),
        monotonic: Callable[[], float] = time.monotonic,
        entropy: Callable[[int], bytes] = os.urandom,
        codecs: Sequence[PayloadCodec] = (),
        meter: Meter | None = None,
    ) -> None:
        self.meter = meter
        self.vault = Vault(codecs)
        self.store = store = sealed_store(store, self.vault)
        self.namespace = namespace
        self.payload_bytes_max = payload_bytes_max
        self.entropy = entropy
        self.monotonic = monotonic
        self.keyring = Keyring(store, token_keys, monotonic)
        self.loop = asyncio.get_running_loop()
        self.clock = LedgerClock(monotonic)
        self.committer = Committer(
            store, self.loop, on_store=lambda error: self.store_told("writes", error), meter=meter
        )
        self._outage = Outage(monotonic, lambda: sum(engine.runs.waiting for engine in self.engines))
        self.followers = Followers(store, self.loop)
        self.engines: list[Engine] = []
        self.heart_arguments: tuple[Any, ...] = ()
        self.attribute_kinds: dict[str, str] = {}
        self._sampled_at = -CLOCK_AGE_S
        self._watchers: dict[int, list[asyncio.Future[tuple[RunStatus, Command | None] | None]]] = defaultdict(list)
        self._watch: asyncio.Task[None] | None = None
        self._closed = False

    async def now_ms(self) -> int:
        """The store's time."""
        if not self.engines and self.monotonic() - self._sampled_at > CLOCK_AGE_S:
            self.clock.sample(await self.store.now_ms())
            self._sampled_at = self.monotonic()
        return self.clock.now_ms()

    async def close(self) -> None:
        self._closed = True
        await self.committer.drain()
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])
        await self.store.close()

    # Workers ----------------------------------------------------------------------------------------------------------

    def attach(self, engine: Engine) -> None:
        self.engines.append(engine)
        self._start_watch()

    def detach(self, engine: Engine) -> None:
        self.engines.remove(engine)

    def engine_for(self, workflow_type: str, task_queue: str) -> Engine | None:
        """The worker of this process where a run of this type may be born."""
        for engine in self.engines:
            if engine.takes(workflow_type, task_queue):
                return engine
        return None

    def owner_of(self, run_key: int) -> Engine | None:
        """The worker of this process that holds the run in memory."""
        for engine in self.engines:
            if run_key in engine.runs.active:
                return engine
        return None

    def tell_workers(self) -> None:
        """Somebody may have written what concerns them: they look at once."""
        for engine in self.engines:
            engine.changed()

    def store_told(self, subject: Subject, error: BaseException | None) -> None:
        """The store has failed, or works again (None)."""
        if error is not None and self.meter is not None:
            self.meter.store_failed(subject)
        if error is None:
            self._outage.works(subject)
        elif self.engines:  # a client alone gets the error itself
            self._outage.failed(subject, error)

    def session_keys(self) -> list[int]:
        return [engine.session.key for engine in self.engines]

    def send(self, message: Send) -> asyncio.Future[Answer]:
        """Write a message, and tell the run's owner of it if that is in this process: no wake-up is stored for it."""

        def tell(answer: Answer) -> None:
            successor = answer.successor if isinstance(answer, Sent) else None
            for engine in self.engines:
                engine.message_sent(successor or message.run_key, answer)

        return self.committer.write(message, tell)

    def outcome_written(self, run_key: int) -> None:
        """A client of this process has ended an attempt that was out: whoever has the run looks at its mail, and a
        next attempt is in the queue."""
        for engine in self.engines:
            engine.intake.mail.arrived(run_key)
            engine.intake.attempts_ended()
            engine.changed()

    # Waiting for runs -------------------------------------------------------------------------------------------------

    def watch(self, run_key: int) -> asyncio.Future[tuple[RunStatus, Command | None] | None]:
        """Done when the run has closed (with its status and last command, if that happened here) or something else may
        have changed (None): then look again."""
        future: asyncio.Future[tuple[RunStatus, Command | None] | None] = self.loop.create_future()
        self._watchers[run_key].append(future)
        if not self.engines:
            self._start_watch()
        return future

    def unwatch(self, run_key: int, future: asyncio.Future[Any]) -> None:
        waiting = self._watchers.get(run_key)
        if waiting is not None and future in waiting:
            waiting.remove(future)
            if not waiting:
                del self._watchers[run_key]

    def run_closed(self, run_key: int, status: RunStatus, command: Command | None) -> None:
        """A run closed in this process."""
        for future in self._watchers.pop(run_key, ()):
            if not future.done():
                future.set_result((status, command))

    def run_changed(self, run_key: int) -> None:
        """Something about the run changed: whoever waits looks again."""
        for future in self._watchers.pop(run_key, ()):
            if not future.done():
                future.set_result(None)

    def terminated(self, run_key: int) -> None:
        """A client of this process ended the run from outside, and the slots of its attempts are free."""
        engine = self.owner_of(run_key)
        if engine is not None:
            engine.terminated(run_key)
        for each in self.engines:
            each.intake.attempts_ended()
        self.run_changed(run_key)

    def _start_watch(self) -> None:
        if self._watch is None or self._watch.done():
            self._watch = self.loop.create_task(self._watch_store(), name="pledger-watch")

    async def _watch_store(self) -> None:
        """One task for all who wait in this process, workers and clients: one hint, one question."""
        while not self._closed and (self.engines or self._watchers or self.followers):
            try:
                changed = await self.store.wait_for_change(CHECK_S)
                if changed:
                    self.tell_workers()
                await self._check_watched()
                await self.followers.look()
            except Exception as error:  # whatever it is: those who wait must not wait for ever
                if not isinstance(error, StoreError):
                    logger.exception("looking for what has changed in the store failed; it goes on")
                await asyncio.sleep(CHECK_S)

    async def _check_watched(self) -> None:
        # Runs that a worker here holds are told of directly; only the others are asked for.
        elsewhere = [run_key for run_key in self._watchers if self.owner_of(run_key) is None]
        if not elsewhere:
            return
        statuses = await self.store.read_statuses(elsewhere)
        for run_key in elsewhere:
            # One that is not there any more was deleted, or lost with its ledger's newest part.
            status, blocked = statuses.get(run_key, ("gone", False))
            if status != "running" or blocked:
                self.run_changed(run_key)
