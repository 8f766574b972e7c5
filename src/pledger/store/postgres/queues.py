"""Task queues whose rows stand in lanes, or whose activities are limited.

A claim is one transaction: it reads what there is to choose from, locks the rates and the rows that it has chosen,
takes the slots, and starts the attempts. Two claims may choose the same row or the same slot at one moment: a row is
whose lock comes first, a slot is whose row of it is there first.

Whoever has just come waits for the claim that is on its way, and for the one that takes it: so a claim takes no more
round trips than it must, three where there are fairness keys and no limits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import psycopg
from msgspec.structs import replace

from pledger.engine.port import choosing, lanes
from pledger.engine.port.gates import deciding
from pledger.engine.port.lane_text import limits_of
from pledger.engine.port.lanes import Bounds, Choice, Claim, Grant, Head, Served, Situation, Slot, SlotKey
from pledger.engine.port.pauses import Lifting, Part
from pledger.engine.port.records import LimitRow, PlaceRow, QueueRow, TaskRow
from pledger.history.placement import LimitRule, LimitUse
from pledger.store import queue_rows
from pledger.store.postgres.arrays import array_parameters, pack
from pledger.store.postgres.dependencies import columns_of, rows_of
from pledger.store.postgres.links import all_answers, pipelined
from pledger.store.postgres.pauses import PostgresPauses
from pledger.store.postgres.writes import columns

Connection = psycopg.AsyncConnection[Any]

#: How often a claim chooses again, when others have taken all of what it had chosen.
CHOICES_MAX: Final = 3


class PostgresQueues(PostgresPauses):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._windows: dict[tuple[str, str, str], str] = {}
        self._asked: dict[tuple[str, ...], list[tuple[int, str]]] = {}
        self._swept: tuple[Any, ...] = ("", "", "", 0)
        self._claims = 0

    async def claim_queued(self, session_key: int, now_ms: int, served: Served, room: int, bounds: Bounds) -> Claim:
        tried = _Try(self, session_key, now_ms, served, bounds, room, is_whole=True)
        claim = await self._passing(tried.claim)
        for _ in range(CHOICES_MAX - 1):
            if claim.tasks or not tried.was_overtaken:
                break
            claim = await self._passing(tried.claim)
        self._interest.in_slots(served, waits=claim.waits)
        return claim

    async def claim_lifted_tasks(
        self, session_key: int, now_ms: int, served: Served, room: int, bounds: Bounds
    ) -> Claim:
        claims: list[Claim] = []

        async def take(connection: Connection, part: Part) -> list[TaskRow]:
            narrowed = replace(served, activity_types=part.names, lifted=part.lifted)
            claims.append(await _Try(self, session_key, now_ms, narrowed, bounds, part.room).claim(connection))
            return claims[-1].tasks

        def parts(lifting: Lifting) -> Iterator[Part]:
            claims.clear()
            return lifting.of_tasks(served.activity_types, room)

        await self._claim_lifted(served.namespace, served.task_queue, parts, take)
        return lanes.claimed(claims)

    async def state_limits(self, namespace: str, rules: Mapping[str, LimitRule]) -> None:
        rows = [(name, rule.concurrency, rule.rate, rule.per_ms) for name, rule in sorted(rules.items())]
        await self._change("state_limits", *self._bound("state_limits", namespace, *columns(rows)))

    async def override_limit(self, namespace: str, name: str, override: LimitRule | None) -> None:
        rule = override or LimitRule()
        numbers = (rule.concurrency, rule.rate, rule.per_ms)

        async def change(connection: Connection) -> None:
            await self._execute(connection, "override_limit", namespace, name, override is not None, *numbers)
            await self._execute(connection, "drop_unused_limit", namespace, name)

        await self._transact(change)

    async def read_limits(self, namespace: str) -> list[LimitRow]:
        rows = await self._list("read_limits", namespace)
        in_use = await self._list("slots_in_use", namespace)
        return queue_rows.limits_shown(rows, in_use, await self._list("lane_lengths", namespace))

    async def read_queues(self, namespace: str, now_ms: int) -> list[QueueRow]:
        queued = await self._list("read_queues", namespace, now_ms)
        return queue_rows.queue_rows(queued, await self._list("started_of_queues", namespace))

    async def read_places(self, run_key: int) -> list[PlaceRow]:
        found = []
        for event_id, lane, namespace, before in await self._list("places", run_key):
            slots = await self._list("slots", *self._bound("slots", namespace, *_split(limits_of(lane))))
            found.append(queue_rows.place_row(event_id, before, lane, (Slot(*row) for row in slots)))
        return found

    async def _list(self, name: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """For people: it may be long."""
        return await self._read_sql(self._lists, self._sql[name], parameters)

    def _bound(self, name: str, *parameters: Any) -> list[Any]:
        arrays = array_parameters(self._sql[name])
        return [pack(arrays[at], each) if at in arrays else each for at, each in enumerate(parameters)]

    def _sweep_of(self, served: Served, choice: Choice, store_ms: int) -> list[tuple[str, list[Any]]]:
        """Statements that forget some of what says nothing any more."""
        swept: list[tuple[str, list[Any]]] = []
        if any(grant.slots for grant in choice.grants):
            swept.append(("free_slots", [*self._swept, queue_rows.sweep_size(len(choice.grants))]))
        if choice.full_ms:
            swept.append(("drop_full_buckets", [store_ms, queue_rows.sweep_size(len(choice.full_ms))]))
        self._claims += 1
        if self._claims % queue_rows.TURNS_SWEPT_EVERY == 0:
            place, most = (served.namespace, served.task_queue), queue_rows.TURNS_MAX
            swept += [("drop_passed_turns", [*place, *clock, most]) for clock in sorted(choice.clocks.items())]
        return swept


class _Try:
    """One try of a claim. is_whole: it is a transaction by itself, which begins in its first round trip and ends in its
    last one. was_overtaken: somebody else has taken some of what it had chosen."""

    def __init__(
        self,
        store: PostgresQueues,
        session_key: int,
        now_ms: int,
        served: Served,
        bounds: Bounds,
        room: int,
        *,
        is_whole: bool = False,
    ) -> None:
        self._store = store
        self._session_key = session_key
        self._now_ms = now_ms
        self._served = served
        self._bounds = bounds
        self._room = room
        self._place = (served.namespace, served.task_queue)
        self._is_whole = is_whole
        self._seen: dict[SlotKey, Slot] = {}
        self._was_cut = self._is_cut = False
        self.was_overtaken = False

    async def claim(self, connection: Connection) -> Claim:
        self.was_overtaken = False
        found = await self._find(connection)
        choice = Choice() if found is None else choosing.choose(found, self._bounds, self._room, self._served.ahead)
        if found is not None and choice.grants:
            locked = await self._lock(connection, choice.grants)
            choice = self._keep(found, choice, [grant for grant in choice.grants if _row(grant) in locked])
            choice = self._keep(found, choice, await self._take_slots(connection, choice.grants))
        is_cut = self._is_cut or self.was_overtaken  # if by now nothing is left of it, there may be others
        queue_rows.look_on(choice, self._now_ms, was_cut=self._was_cut, is_cut=is_cut)
        if choice.aside:
            await self._set_aside(connection, choice)
        return choice.claim(await self._start(connection, choice, found))

    def _keep(self, found: Situation, choice: Choice, won: list[Grant]) -> Choice:
        """Of the choice what nobody else was faster to take. What was taken away costs nothing: no tokens, no turns."""
        if len(won) == len(choice.grants):
            return choice
        self.was_overtaken = True
        found.heads = [grant.head for grant in won]
        again = choosing.choose(found, self._bounds, self._room, self._served.ahead)
        again.grants = won  # which keep the slots that they have, or are about to take
        return again

    # Reading ----------------------------------------------------------------------------------------------------------

    async def _find(self, connection: Connection) -> Situation | None:
        """What there is to choose from; None when there is nothing, or the session is gone."""
        store, types = self._store, list(self._served.activity_types)
        windows = [store._windows.get((*self._place, name), "") for name in types]  # noqa: SLF001 - a part of the store
        lanes_max = lanes.lanes_of_each(types)
        depended = sorted(self._bounds.budgets)
        # Those of last time are asked for at once: mostly the heads are of the same keys, and need no more round trips.
        asked = store._asked.get((*self._place, *types), [])  # noqa: SLF001 - as above
        alive, overrides, [(now_ms,)], rows, *others = await self._run(
            connection,
            ("lock_session", [self._session_key]),
            ("overrides", [self._served.namespace]),
            ("now_in_order", [store._now()]),  # noqa: SLF001 - as above
            (
                "queue_heads",
                [*self._place, types, windows, lanes_max, self._now_ms, self._room, list(self._served.lifted)],
            ),
            *([("turns", [*self._place, *columns(asked)])] if asked else []),
            *([("some_dependencies", [self._served.namespace, depended])] if depended else []),
            begins=self._is_whole,
        )
        if not alive:
            return None
        self._look_further([(row[3], row[4]) for row in rows], lanes_max)
        heads = [Head(*row) for row in rows if row[0] is not None]
        if not heads:
            return None
        numbers = {name: LimitRule(*rule) for name, *rule in overrides}
        found = Situation(self._now_ms, now_ms, heads, numbers)
        if depended:
            found.dependencies = rows_of(others[-1])
        if asked:
            queue_rows.read_turns(found, others[0])
        await self._find_limits(connection, found, asked)
        return found

    def _look_further(self, looked_at: Iterable[tuple[str, str | None]], lanes_max: int) -> None:
        """The next claim looks at the lanes after these, where there are more than one claim looks at. looked_at: the
        types, each with a lane of it or None."""
        seen: dict[str, set[str]] = {name: set() for name in self._served.activity_types}
        for name, lane in looked_at:
            if lane is not None:
                seen[name].add(lane)
        windows = self._store._windows  # noqa: SLF001 - a part of the store
        for name, each in seen.items():
            window = (*self._place, name)
            self._was_cut = windows.pop(window, None) is not None or self._was_cut
            if len(each) == lanes_max:
                windows[window] = max(each)
                self._is_cut = True

    async def _find_limits(self, connection: Connection, found: Situation, known: Collection[tuple[int, str]]) -> None:
        """The slots and rates of what the heads count for, and the turns of their shares, unless all of those are
        known."""
        uses = lanes.uses_of_all(found.heads, self._bounds)
        rated = [use for use in uses if self._has_rate(use, found.overrides)]
        asked = queue_rows.asked_turns(lanes.shares_of_all(found.heads))
        self._store._asked[*self._place, *self._served.activity_types] = asked  # noqa: SLF001 - a part of the store
        namespace = self._served.namespace
        statements: list[tuple[str, list[Any]]] = []
        if names := deciding(found.heads, self._bounds, found.dependencies, found.store_ms):
            # Before the slots are read: under this lock nobody else takes those of a breaker.
            statements.append(("lock_dependencies", [namespace, names]))
        if uses:
            statements.append(("slots", [namespace, *_split(uses)]))
        if rated:
            statements.append(("make_buckets", [namespace, *_split(rated)]))
            statements.append(("lock_buckets", [namespace, *_split(rated)]))
        if not set(known).issuperset(asked):
            statements.append(("turns", [*self._place, *columns(asked)]))
        if not statements:
            return
        for (name, _), rows in zip(statements, await self._run(connection, *statements), strict=True):
            self._take_limits(name, rows, found)
        while len(found.full_ms) < len(rated):
            # One was full, and was swept away before it was locked: once more, or two might take all its tokens.
            made, locked = (
                ("make_buckets", [namespace, *_split(rated)]),
                ("lock_buckets", [namespace, *_split(rated)]),
            )
            _, rows = await self._run(connection, made, locked)
            self._take_limits("lock_buckets", rows, found)

    def _take_limits(self, statement: str, rows: Sequence[Any], found: Situation) -> None:
        match statement:
            case "lock_dependencies":
                found.dependencies = {**found.dependencies, **rows_of(rows)}
            case "slots":
                found.slots = self._seen = {(row[0], row[1], row[2]): Slot(*row) for row in rows}
            case "lock_buckets":
                found.full_ms = {(limit, key): at for limit, key, at in rows}
            case "turns":
                queue_rows.read_turns(found, rows)
            case _:
                pass

    def _has_rate(self, use: LimitUse, overrides: Mapping[str, LimitRule]) -> bool:
        return self._bounds.rules.get(use[0], LimitRule()).under(overrides.get(use[0])).rate is not None

    # Taking -----------------------------------------------------------------------------------------------------------

    async def _lock(self, connection: Connection, grants: Sequence[Grant]) -> set[tuple[int, int]]:
        rows = sorted((*_row(grant), grant.head.attempt) for grant in grants)
        [locked] = await self._run(connection, ("lock_queued", columns(rows)))
        return {(run_key, event_id) for run_key, event_id in locked}

    async def _set_aside(self, connection: Connection, choice: Choice) -> None:
        aside = sorted((head.run_key, head.event_id, head.attempt, lane) for head, lane in choice.aside)
        [locked] = await self._run(connection, ("lock_queued", columns([row[:3] for row in aside])))
        if rows := [row for row in aside if row[:2] in set(locked)]:
            await self._run(connection, ("set_aside", columns(rows)))

    async def _take_slots(self, connection: Connection, grants: list[Grant]) -> list[Grant]:
        """Those that got all their slots."""
        wanted = sorted(
            (*slot, self._session_key, grant.head.run_key, grant.head.event_id, grant.head.attempt)
            for grant in grants
            for slot in grant.slots
        )
        if not wanted:
            return grants
        stale = [self._seen[row[:3]][:7] for row in wanted if row[:3] in self._seen]
        there = columns(stale) if stale else [[] for _ in range(7)]
        parameters = [self._served.namespace, *columns(wanted), *there]
        [rows] = await self._run(connection, ("take_slots", parameters))
        taken = set(rows)
        won = [grant for grant in grants if taken.issuperset(grant.slots)]
        if len(won) < len(grants):
            kept = {slot for grant in won for slot in grant.slots}
            if back := sorted(taken - kept):
                await self._run(connection, ("give_slots_back", [self._served.namespace, *columns(back)]))
        return won

    async def _start(self, connection: Connection, choice: Choice, found: Situation | None) -> list[TaskRow]:
        """What was chosen, with all else that has changed."""
        store, namespace = self._store, self._served.namespace
        statements: list[tuple[str, list[Any]]] = []
        if choice.grants:
            granted = [(*_row(grant), bool(grant.slots)) for grant in choice.grants]
            statements.append(("start_tasks", [self._session_key, self._now_ms, *columns(granted)]))
        if choice.dependencies:
            statements.append(("write_dependencies", [namespace, *columns_of(choice.dependencies)]))
        if choice.full_ms:
            filled = [(*use, at) for use, at in sorted(choice.full_ms.items())]
            statements.append(("fill_buckets", [namespace, *columns(filled)]))
        if turns := queue_rows.turns_of(choice):
            statements.append(("take_turns", [*self._place, *columns(turns)]))
        if found is None or not statements:
            if self._is_whole:
                # What has written nothing need not wait for the disk.
                has_written = choice.aside or (found is not None and found.full_ms)
                await connection.execute("COMMIT" if has_written else "ROLLBACK")
            return []
        statements += store._sweep_of(self._served, choice, found.store_ms)  # noqa: SLF001 - a part of the store
        by_key: dict[tuple[int, int], TaskRow] = {}
        answers = await self._run(connection, *statements, commits=self._is_whole)
        for (name, given), rows in zip(statements, answers, strict=True):
            if name == "start_tasks":
                by_key = {(row[0], row[1]): TaskRow(*row) for row in rows}
            elif name == "free_slots":
                is_whole = bool(rows) and rows[0][-1] == given[-1]
                store._swept = rows[0][:-1] if is_whole else ("", "", "", 0)  # noqa: SLF001 - as above
        return [by_key[_row(grant)] for grant in choice.grants]

    async def _run(
        self, connection: Connection, *statements: tuple[str, list[Any]], begins: bool = False, commits: bool = False
    ) -> list[list[Any]]:
        """The rows of each, in one round trip, in which a transaction may begin or be committed too."""
        store = self._store
        async with pipelined(connection) as pipeline:
            if begins:
                await connection.execute("BEGIN")
            cursors = [
                await connection.execute(store._sql[name], store._bound(name, *given), binary=True)  # noqa: SLF001
                for name, given in statements
            ]
            if commits:
                await connection.execute("COMMIT")
            await all_answers(pipeline)
            return [await each.fetchall() if each.description is not None else [] for each in cursors]


def _row(grant: Grant) -> tuple[int, int]:
    return grant.head.run_key, grant.head.event_id


def _split(uses: Sequence[LimitUse]) -> list[list[str]]:
    return [[name for name, _ in uses], [key for _, key in uses]]
