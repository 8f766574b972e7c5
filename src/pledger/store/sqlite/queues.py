"""Task queues whose rows stand in lanes, or whose activities are limited."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from pledger.engine.port import choosing, lanes
from pledger.engine.port.gates import dependencies_of_all
from pledger.engine.port.lane_text import limits_of
from pledger.engine.port.lanes import Bounds, Choice, Claim, Head, Served, Situation, Slot
from pledger.engine.port.pauses import Part
from pledger.engine.port.records import LimitRow, PlaceRow, QueueRow, TaskRow
from pledger.history.placement import LimitRule
from pledger.store import queue_rows
from pledger.store.sqlfiles import as_json, load_queries
from pledger.store.sqlite import dependencies, pauses, sessions, tasks
from pledger.store.sqlite.handle import SqliteHandle, time_of
from pledger.store.sqlite.writer import Cursor, Reader

_SQL: Final = load_queries(__package__, "queues")

#: The last lane that was looked at of a type of a queue, where there are more than one claim looks at.
Windows: TypeAlias = dict[tuple[str, str, str], str]
#: What is read for a claim: see `_read`.
Question: TypeAlias = tuple[Windows, int, int | None, Served, Bounds, int]


class SqliteQueues(SqliteHandle):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._windows: Windows = {}
        self._swept: tuple[Any, ...] = ("", "", "", 0)
        self._claims = 0

    async def claim_queued(self, session_key: int, now_ms: int, served: Served, room: int, bounds: Bounds) -> Claim:
        question = (self._windows, now_ms, self._now(), served, bounds, room)
        # Looked at first without the write lock: what is limited is mostly not to be had. A look that is all there is
        # moves the windows on.
        self._check_open()
        windows = dict(self._windows)
        choice = _choose(self._database, question)
        if choice.is_nothing:
            return choice.claim([])
        # The claim goes over the same lanes once more: so the windows stand where they stood before the look, and it is
        # the claim that moves them.
        self._windows = windows

        def claim(cursor: Cursor) -> Claim:
            return self._claim(cursor, session_key, (windows, *question[1:]))

        # Durable, as the claim of any row: it is the record that an attempt was made.
        return await self._submit(claim, durable=True)

    async def claim_lifted_tasks(
        self, session_key: int, now_ms: int, served: Served, room: int, bounds: Bounds
    ) -> Claim:
        place = (served.namespace, served.task_queue)
        claims: list[Claim] = []

        def take(cursor: Cursor, part: Part) -> list[TaskRow]:
            narrowed = replace(served, activity_types=part.names, lifted=part.lifted)
            question = (self._windows, now_ms, self._now(), narrowed, bounds, part.room)
            claims.append(self._claim(cursor, session_key, question))
            return claims[-1].tasks

        # Looked at first without the write lock: mostly there are no tokens.
        self._check_open()
        lifting = pauses.lifting(self._database, *place, self._time(self._database))
        if not (lifting.paid or any(lifting.of_tasks(served.activity_types, room))):
            return Claim([])

        def claim(cursor: Cursor) -> Claim:
            claims.clear()
            now = pauses.lifting(cursor, *place, self._time(cursor))
            pauses.claim(cursor, now, now.of_tasks(served.activity_types, room), take)
            return lanes.claimed(claims)

        return await self._submit(claim, durable=True)

    def _claim(self, cursor: Cursor, session_key: int, question: Question) -> Claim:
        _, now_ms, _, served, _, _ = question
        if not sessions.is_alive(cursor, session_key):
            return Claim([])
        choice = _choose(cursor, question)
        found = _carry_out(cursor, session_key, now_ms, served, choice)
        self._sweep(cursor, served, choice)
        return choice.claim(found)

    def _sweep(self, cursor: Cursor, served: Served, choice: Choice) -> None:
        """Forget some of what says nothing any more."""
        if any(grant.slots for grant in choice.grants):
            room = queue_rows.sweep_size(len(choice.grants))
            slots = cursor.rows(_SQL["next_slots"], (*self._swept, room))
            for *place, is_live in slots:
                if not is_live:
                    cursor.execute(_SQL["free_slot"], tuple(place))
            self._swept = slots[-1][:4] if len(slots) == room else ("", "", "", 0)
        if choice.full_ms:
            room = queue_rows.sweep_size(len(choice.full_ms))
            cursor.execute(_SQL["drop_full_buckets"], (self._time(cursor), room))
        self._claims += 1
        if self._claims % queue_rows.TURNS_SWEPT_EVERY == 0:
            queue = (served.namespace, served.task_queue)
            for clock in choice.clocks.items():
                cursor.execute(_SQL["drop_passed_turns"], (*queue, *clock, queue_rows.TURNS_MAX))

    async def state_limits(self, namespace: str, rules: Mapping[str, LimitRule]) -> None:
        def state(cursor: Cursor) -> None:
            for name, rule in rules.items():
                cursor.execute(_SQL["state_limit"], (namespace, name, rule.concurrency, rule.rate, rule.per_ms))

        await self._submit(state)

    async def override_limit(self, namespace: str, name: str, override: LimitRule | None) -> None:
        rule = override or LimitRule()
        numbers = (int(override is not None), rule.concurrency, rule.rate, rule.per_ms)

        def change(cursor: Cursor) -> None:
            cursor.execute(_SQL["override_limit"], (namespace, name, *numbers))
            cursor.execute(_SQL["drop_unused_limit"], (namespace, name))

        await self._submit(change, durable=True)

    async def read_limits(self, namespace: str) -> list[LimitRow]:
        rows = self._rows(_SQL["read_limits"], namespace)
        in_use = self._rows(_SQL["slots_in_use"], namespace)
        return queue_rows.limits_shown(rows, in_use, self._rows(_SQL["lane_lengths"], namespace))

    async def read_queues(self, namespace: str, now_ms: int) -> list[QueueRow]:
        queued = self._rows(_SQL["read_queues"], namespace, now_ms)
        return queue_rows.queue_rows(queued, self._rows(_SQL["started_of_queues"], namespace))

    async def read_places(self, run_key: int) -> list[PlaceRow]:
        found = []
        for event_id, lane, namespace, before in self._rows(_SQL["places"], run_key):
            slots = self._rows(_SQL["slots"], namespace, as_json(limits_of(lane)))
            found.append(queue_rows.place_row(event_id, before, lane, (Slot(*row) for row in slots)))
        return found


# A claim --------------------------------------------------------------------------------------------------------------


def _choose(reader: Reader, question: Question) -> Choice:
    windows, now_ms, _, served, bounds, room = question
    was_cut = _has_window(windows, served)
    choice = choosing.choose(_read(reader, *question), bounds, room, served.ahead)
    queue_rows.look_on(choice, now_ms, was_cut=was_cut, is_cut=_has_window(windows, served))
    return choice


def _has_window(windows: Windows, served: Served) -> bool:
    return any((served.namespace, served.task_queue, name) in windows for name in served.activity_types)


def _read(
    reader: Reader, windows: Windows, now_ms: int, clock: int | None, served: Served, bounds: Bounds, room: int
) -> Situation:
    rows, place = reader.rows, (served.namespace, served.task_queue)
    heads = _heads(reader, windows, now_ms, served, room)
    uses = as_json(lanes.uses_of_all(heads, bounds))
    found = Situation(now_ms, time_of(reader, clock), heads)
    if uses != "[]":
        overrides = rows(_SQL["overrides"], (place[0],))
        found.overrides = {name: LimitRule(*rule) for name, *rule in overrides}
        slots = [Slot(*row) for row in rows(_SQL["slots"], (place[0], uses))]
        found.slots = {(slot.limit, slot.key, slot.number): slot for slot in slots}
        found.full_ms = {(name, key): at for name, key, at in rows(_SQL["buckets"], (place[0], uses))}
    if names := dependencies_of_all(heads, bounds):
        found.dependencies = dependencies.read_some(reader, place[0], names)
    shares = lanes.shares_of_all(heads)
    if shares:
        asked = as_json(queue_rows.asked_turns(shares))
        queue_rows.read_turns(found, rows(_SQL["turns"], (*place, asked)))
    return found


def _heads(reader: Reader, windows: Windows, now_ms: int, served: Served, room: int) -> list[Head]:
    rows, place = reader.rows, (served.namespace, served.task_queue)
    lifted = as_json(served.lifted)
    if rows(_SQL["is_paused"], (*place, lifted)):
        for name in served.activity_types:
            windows.pop((*place, name), None)
        return []
    lanes_max = lanes.lanes_of_each(served.activity_types)
    found: list[tuple[str, str]] = []
    heads: list[Head] = []
    for name in served.activity_types:
        window = (*place, name)
        of_type = [lane for (lane,) in rows(_SQL["lanes_of_type"], (*window, windows.get(window, ""), lanes_max))]
        found += [(name, lane) for lane in of_type]
        if len(of_type) == lanes_max:
            windows[window] = of_type[-1]
        else:
            windows.pop(window, None)
        heads += [_head(row) for row in rows(_SQL["heads_of_type"], (*window, now_ms, room, lifted))]
        heads += [_head(row) for row in rows(_SQL["next_of_type"], (*window, now_ms, lifted))]
    each = lanes.heads_of_each(room, len(found))
    for name, lane in found:
        heads += [_head(row) for row in rows(_SQL["heads_of_lane"], (*place, name, lane, each, lifted))]
    return heads


def _head(row: tuple[Any, ...]) -> Head:
    return Head(*(*row[:-1], bool(row[-1])))


def _carry_out(cursor: Cursor, session_key: int, now_ms: int, served: Served, choice: Choice) -> list[TaskRow]:
    namespace = served.namespace
    found = []
    for head, slots in choice.grants:
        for slot in slots:
            holder = (session_key, head.run_key, head.event_id, head.attempt)
            cursor.execute(_SQL["take_slot"], (namespace, *slot, *holder))
        [(task_key,)] = cursor.rows(_SQL["task_key"], (head.run_key, head.event_id))
        found.append(tasks.start_task(cursor, session_key, now_ms, task_key))
    for head, lane in choice.aside:
        dependencies.set_aside(cursor, lane, head.run_key, head.event_id, head.attempt)
    dependencies.write(cursor, namespace, choice.dependencies)
    for use, full_ms in choice.full_ms.items():
        cursor.execute(_SQL["fill_bucket"], (namespace, *use, full_ms))
    for turn in queue_rows.turns_of(choice):
        cursor.execute(_SQL["take_turn"], (namespace, served.task_queue, *turn))
    return found
