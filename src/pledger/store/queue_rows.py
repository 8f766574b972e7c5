"""How the stores keep and show what limits and fairness go by."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from pledger.engine.port.lane_text import CALLS, Share, held_up_by, limits_of
from pledger.engine.port.lanes import Choice, Situation, Slot
from pledger.engine.port.records import LimitRow, PlaceRow, QueueRow
from pledger.history.placement import LimitRule, LimitUse

Rows: TypeAlias = Sequence[tuple[Any, ...]]

#: Keys of a limit that are shown: those that are used most.
KEYS_MAX: Final = 100
#: See `sweep_size`.
_SWEEP: Final = 20
#: Shares of a priority whose turns are remembered beyond that: keys that come once never fall behind the clock.
TURNS_MAX: Final = 10_000
#: One claim in so many forgets the shares that have been away.
TURNS_SWEPT_EVERY: Final = 16
#: Before the next lanes are looked at, where a claim found nothing in a part of them, in milliseconds.
NEXT_LANES_MS: Final = 50
#: The same once nothing was found in any of them: what has come meanwhile may stand where nobody looked any more.
NEXT_ROUND_MS: Final = 1_000


def look_on(choice: Choice, now_ms: int, *, was_cut: bool, is_cut: bool) -> None:
    """What a claim that found nothing says of the lanes that it has not looked at. was_cut, is_cut: there are such
    before and after those that it has looked at."""
    if choice.grants or not (was_cut or is_cut):
        return
    choice.waits = True  # some of them may
    choice.is_due_by(now_ms + (NEXT_LANES_MS if is_cut else NEXT_ROUND_MS))


def sweep_size(added: int) -> int:
    """How many slots or buckets are looked through for such as are over, by a claim that has added so many: more than
    these, so that they do not pile up."""
    return _SWEEP + 2 * added


def read_turns(found: Situation, rows: Rows) -> None:
    """The clocks of priorities and the passes of shares, as they stand in rows (priority, share, pass)."""
    found.clocks = {priority: at for priority, share, at in rows if not share}
    found.passes = {(priority, share[1:]): at for priority, share, at in rows if share}


def asked_turns(shares: Sequence[Share]) -> list[tuple[int, str]]:
    """The rows of them and of their clocks. Sorted."""
    return sorted({(priority, "") for priority, _ in shares} | {(priority, f"={key}") for priority, key in shares})


def turns_of(choice: Choice) -> list[tuple[int, str, float]]:
    """The same of a choice. Sorted."""
    passes = ((priority, f"={key}", at) for (priority, key), at in choice.passes.items())
    return sorted([*((priority, "", at) for priority, at in choice.clocks.items()), *passes])


def limits_shown(rows: Rows, in_use: Rows, lengths: Rows) -> list[LimitRow]:
    """As `limit_rows`, of what stands in tables. rows: (name, is stated, numbers, is set, numbers of operators), where
    numbers are three. in_use: (limit, key, count). lengths: (lane, count)."""
    stated = {row[0]: LimitRule(*row[2:5]) for row in rows if row[1]}
    overrides = {row[0]: LimitRule(*row[6:9]) for row in rows if row[5]}
    used = {(name, key): count for name, key, count in in_use}
    waiting: dict[str, int] = dict(lengths)
    return limit_rows(stated, overrides, used, waiting)


def limit_rows(
    stated: Mapping[str, LimitRule],
    overrides: Mapping[str, LimitRule],
    used: Mapping[LimitUse, int],
    lengths: Mapping[str, int],
) -> list[LimitRow]:
    """used: live slots. lengths: how many rows wait in each lane."""
    waiting: Counter[LimitUse] = Counter()
    for lane, count in lengths.items():
        for use in limits_of(lane):
            waiting[use] += count
    keys: dict[str, list[tuple[str, int, int]]] = defaultdict(list)
    for name, key in (use for use in used.keys() | waiting.keys() if use[0] != CALLS):
        keys[name].append((key, used.get((name, key), 0), waiting[name, key]))
    return [
        LimitRow(
            name,
            stated.get(name),
            overrides.get(name),
            tuple(sorted(keys[name], key=lambda each: (-each[1], -each[2], each[0]))[:KEYS_MAX]),
        )
        for name in sorted(stated.keys() | overrides.keys() | keys.keys())
    ]


def place_row(event_id: int, before: int, lane: str | None, slots: Iterable[Slot]) -> PlaceRow:
    """before: how many of its lane come first. slots: of the limits that it counts for, at least."""
    used = Counter((slot.limit, slot.key) for slot in slots if slot.live)
    limits = tuple((*use, used[use]) for use in limits_of(lane))
    return PlaceRow(event_id, before + 1, limits, *(held_up_by(lane) or (None, False)))


def queue_rows(queued: Rows, started: Rows) -> list[QueueRow]:
    """queued: (queue, due, oldest, later). started: (queue, count)."""
    running: dict[str, int] = dict(started)
    rows = {name: (due, oldest, later) for name, due, oldest, later in queued}
    return [
        QueueRow(name, *rows.get(name, (0, None, 0)), running.get(name, 0))
        for name in sorted(rows.keys() | running.keys())
    ]
