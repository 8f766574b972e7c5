"""Lanes as they stand in rows: see `lanes`."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from pledger.history.placement import DEFAULT_PRIORITY, LimitUse, Placement

Share: TypeAlias = tuple[int, str]
"""(priority, fairness key): who takes turns."""

#: What stands beside the limits in a lane of rows that a dependency holds up, with its name as the key. Attempts that a
#: half open one lets through take slots under the first. No limit has such a name: these cannot be printed.
CALLS: Final = "\x01calls"
RETRIES: Final = "\x01retries"
HELD_UP: Final = frozenset({CALLS, RETRIES})


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(tuple[int, str, tuple[LimitUse, ...]]).decode


def lane_of(placement: Placement | None) -> str | None:
    """The lane as it stands in rows. It begins with the priority, so that the first lanes of an index come first."""
    if placement is None:
        return None
    return _encode((placement.priority, placement.fairness_key, placement.limits)).decode()


def read_lane(lane: str | None) -> tuple[Share, tuple[LimitUse, ...]]:
    """Whose turn it takes, and what it counts for."""
    if lane is None:
        return (DEFAULT_PRIORITY, ""), ()
    priority, key, uses = _decode(lane)
    return (priority, key), uses


def limits_of(lane: str | None) -> tuple[LimitUse, ...]:
    """The limits that it counts for, each once: two of one name may have come to the same key."""
    return tuple(dict.fromkeys(use for use in read_lane(lane)[1] if use[0] not in HELD_UP))


def held_up_by(lane: str | None) -> tuple[str, bool] | None:
    """The dependency that rows in a lane were set aside for, and whether they are retries; None for none."""
    found = [use for use in read_lane(lane)[1] if use[0] in HELD_UP]
    return (found[0][1], found[0][0] == RETRIES) if found else None


def lane_aside(lane: str | None, dependency: str, *, is_retry: bool) -> str:
    """The lane for rows of this one that are set aside for their dependency."""
    (priority, key), uses = read_lane(lane)
    return _encode((priority, key, (*uses, (RETRIES if is_retry else CALLS, dependency)))).decode()
