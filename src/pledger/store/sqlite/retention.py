"""What is forgotten of finished chains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pledger.engine.port.records import RunRow
from pledger.engine.port.retention import EVENTS_MAX, Finished, Place
from pledger.store.sqlfiles import as_json, load_queries
from pledger.store.sqlite import labels, streams
from pledger.store.sqlite.handle import SqliteHandle
from pledger.store.sqlite.writer import Cursor

_SQL: Final = load_queries(__package__, "retention")


class SqliteRetention(SqliteHandle):
    async def take_duty(self, namespace: str, name: str, session_key: int, hold_ms: int) -> bool:
        place = (self._now(), namespace, name, session_key)
        # Looked at first without the write lock: mostly there is nothing to do.
        if self._rows(_SQL["is_free"], *place) == [(0,)]:
            return False

        def take(cursor: Cursor) -> bool:
            cursor.execute(_SQL["take_duty"], (*place, hold_ms))
            return cursor.changes() > 0

        return await self._submit(take)

    async def leave_duty(self, namespace: str, name: str, session_key: int, rest_ms: int) -> None:
        bindings = (self._now(), namespace, name, session_key, rest_ms)
        await self._submit(lambda cursor: cursor.execute(_SQL["leave_duty"], bindings))

    async def finished_types(self, namespace: str) -> list[str]:
        return [name for (name,) in self._rows(_SQL["finished_types"], namespace)]

    async def finished_chains(
        self, namespace: str, workflow_type: str, keep_ms: int, after: Place, limit: int
    ) -> list[Finished]:
        bindings = (self._now(), namespace, workflow_type, keep_ms, *after, limit)
        return [
            Finished(chain_key, run_key, closed_ms, events, bool(undelivered))
            for chain_key, run_key, closed_ms, events, undelivered in self._rows(_SQL["finished_chains"], *bindings)
        ]

    async def chain_runs(self, chain_keys: Sequence[int]) -> list[RunRow]:
        return [RunRow(*row) for row in self._rows(_SQL["chain_runs"], as_json(chain_keys))]

    async def forget_chains(self, chain_keys: Sequence[int], keep_ms: int) -> int:
        now = self._now()
        return await self._submit(lambda cursor: _forget(cursor, now, chain_keys, keep_ms))

    async def drop_leftovers(self, limit: int) -> int:
        if not self._rows(_SQL["has_leftovers"]):
            return 0
        return await self._submit(lambda cursor: _drop_some(cursor, limit))


def _forget(cursor: Cursor, now: int | None, chain_keys: Sequence[int], keep_ms: int) -> int:
    found = cursor.rows(_SQL["forgettable_runs"], (now, as_json(chain_keys), keep_ms))
    if not found:
        return 0
    long = [run_key for run_key, _, last_event in found if last_event > EVENTS_MAX]
    short = as_json([run_key for run_key, _, last_event in found if last_event <= EVENTS_MAX])
    runs = as_json([run_key for run_key, _, _ in found])
    chains = as_json(sorted({chain_key for _, chain_key, _ in found}))
    cursor.execute(_SQL["forget_runs"], (now, runs))
    cursor.execute(_SQL["drop_histories"], (short,))
    cursor.execute(_SQL["drop_attempts"], (short,))
    cursor.execute(_SQL["drop_questions"], (runs,))
    cursor.execute(_SQL["drop_losses"], (runs,))
    cursor.execute(_SQL["drop_children"], (runs,))
    labels.forget(cursor, runs)
    cursor.execute(_SQL["drop_messages"], (chains,))
    cursor.execute(_SQL["empty_messages"], (chains,))
    if long:
        cursor.execute(_SQL["keep_leftovers"], (as_json(long),))
    return len(found)


def _drop_some(cursor: Cursor, limit: int) -> int:
    found = cursor.row(_SQL["next_leftover"], ())
    if found is None:
        return streams.drop_some(cursor, limit)
    [run_key] = found
    cursor.execute(_SQL["drop_some_history"], (run_key, limit))
    dropped = cursor.changes()
    cursor.execute(_SQL["drop_some_attempts"], (run_key, limit - dropped))
    dropped += cursor.changes()
    if dropped < limit:
        cursor.execute(_SQL["leftover_is_gone"], (run_key,))
    return max(1, dropped)
