"""Attempts that are to be completed from outside: their tokens, and letting go of them once they are out."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from pledger import errors
from pledger.engine import outside
from pledger.engine.port.operations import HandOut, PutTask
from pledger.engine.port.records import OUTSIDE

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from pledger.engine.attempt import Attempt
    from pledger.engine.keyring import Keyring
    from pledger.engine.port.tokens import TokenKey
    from pledger.engine.session import LedgerClock
    from pledger.engine.task_rows import TaskRows

logger = logging.getLogger("pledger.engine")


class HandingOut:
    """rows: of the same worker. keyring: of its process."""

    def __init__(
        self,
        *,
        rows: TaskRows,
        clock: LedgerClock,
        loop: asyncio.AbstractEventLoop,
        keyring: Keyring,
        session_key: Callable[[], int],
    ) -> None:
        self._rows = rows
        self._clock = clock
        self._loop = loop
        self._keyring = keyring
        self._session_key = session_key
        self._reading: asyncio.Task[None] | None = None

    def key(self) -> TokenKey:
        """What tokens are signed with. Callable from any thread."""
        if self._keyring.is_stale:
            self._loop.call_soon_threadsafe(self._refresh)
        key = self._keyring.signing
        if key is None:
            raise errors.InternalError("the worker has read no key to sign tokens with. Please report this.")
        return key

    def _refresh(self) -> None:
        if self._reading is None or self._reading.done():
            self._reading = self._loop.create_task(self._read(), name="pledger-token-keys")

    async def _read(self) -> None:
        try:
            await self._keyring.read()
        except errors.StoreUnavailableError as error:  # those that are known sign on
            logger.info("the keys of tokens could not be read again: %s", error)

    def hand_out(self, attempt: Attempt) -> None:
        """Its code has ended, and it goes on outside: write that. It has been let go of here."""
        row = attempt.row or self._rows.started(attempt)
        expires_ms = outside.expiry_ms(attempt.command.options, row, self._clock.now_ms())
        if attempt.row is not None or attempt.row_sent:
            # Of one whose first heartbeat has a row on its way: that comes before this.
            owner = self._session_key() if attempt.row is None else attempt.row.owner
            if owner is not None:
                place = (attempt.run_key, attempt.event_id, attempt.number)
                self._rows.finish(attempt, HandOut(*place, owner, expires_ms, attempt.heartbeat))
        else:
            out = msgspec.structs.replace(row, owner=OUTSIDE, expires_ms=expires_ms)
            self._rows.put(PutTask(attempt.fence, out))

    def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
