"""The children of runs that have ended, and that are not to outlive them: they are terminated, or asked to stop.

That it is to be done is written with the end of their parent (see `port.posts`). It is done by whichever worker looks
first, a few at a time, and a worker that dies meanwhile leaves the rest to the next one: who is terminated twice is
terminated, and a request to cancel has an id of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pledger.engine import ending
from pledger.engine.port.answers import Reply
from pledger.engine.port.operations import Send, inbox_room
from pledger.engine.port.posts import notice_id
from pledger.errors import StoreError

if TYPE_CHECKING:
    from pledger.engine.connection import Connection
    from pledger.engine.port.posts import Child, Parting

logger = logging.getLogger("pledger.engine")

#: Children that are seen to together.
TOGETHER: Final = 50


class Partings:
    """done: called when some children have been seen to."""

    def __init__(self, connection: Connection, loop: asyncio.AbstractEventLoop, done: Callable[[], None]) -> None:
        self._connection = connection
        self._loop = loop
        self._done = done
        self._task: asyncio.Task[None] | None = None

    def see_to_them(self) -> None:
        """There are some."""
        if self._task is None:
            self._task = self._loop.create_task(self._see_to_all(), name="pledger-partings")

    async def finish(self) -> None:
        """See to all that there are by now: a run that was reset may start its children again."""
        for _ in range(2):  # who is at it may have looked too early
            self.see_to_them()
            assert self._task is not None
            await asyncio.wait([self._task])

    async def stop(self) -> None:
        """What is under way is finished; the rest is somebody else's."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _see_to_all(self) -> None:
        store, namespace = self._connection.store, self._connection.namespace
        try:
            while (parting := await store.read_parting(namespace, TOGETHER)) is not None:
                for child in parting.children:
                    await self._see_to(parting, child)
                await store.settle_parting(parting.run_key, [each.row.chain_key for each in parting.children])
                self._done()
        except StoreError as error:
            logger.debug("the children of runs that have ended wait: %s", error)  # until the next look
        except Exception:
            logger.exception("seeing to the children of runs that have ended failed; it is tried again")
        finally:
            self._task = None

    async def _see_to(self, parting: Parting, child: Child) -> None:
        connection, row = self._connection, child.row
        reason = f"its parent, workflow {parting.workflow_id!r} (run {parting.run_id}), {_ended(parting.status)}"
        if child.policy == "terminate":
            # Whichever run its chain has now: another one may have gone on for it since it was looked for.
            while row.status == "running" and not await ending.terminate(connection, row, reason):
                row = await connection.store.read_current(row.run_key)
            return
        message_id = notice_id(parting.run_id, child.event_id, "parting")
        now_ms, kind = await connection.now_ms(), "cancel"
        place = (True, connection.session_keys(), inbox_room(kind))
        answer = await connection.send(Send(row.run_key, kind, message_id, "", reason.encode(), now_ms, *place))
        if answer is Reply.FULL:
            logger.error(
                "workflow %r (run %s) outlives its parent, which was to ask it to stop: its inbox takes no more",
                row.workflow_id,
                row.run_id,
            )


def _ended(status: str) -> str:
    return {"completed": "has completed", "failed": "has failed", "timed_out": "has timed out"}.get(
        status, f"was {status}"
    )
