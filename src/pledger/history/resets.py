"""What a reset run takes over of the run before: the keys of its activities, so that no effect gets a second name.

Pure arithmetic on `RunReset`. The client that resets, the machine that replays and the fold that reads all ask here.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict, deque
from collections.abc import Iterable

import msgspec

from pledger.history.events import ActivityOptions, RunReset, ScheduleActivity

#: Fencing tokens of a reset run begin above the next multiple of this: more than an attempt that begins while the reset
#: is on its way could have made of the highest one that was seen.
TOKENS_STEP = 1_000


def digest(args: bytes) -> str:
    """Of an activity's arguments, as `RunReset.past` has it."""
    return hashlib.blake2b(args, digest_size=12).hexdigest()


def tokens_above(seen: int) -> int:
    """The token that no attempt of the run before has reached, which has shown `seen`."""
    return (seen // TOKENS_STEP + 1) * TOKENS_STEP


def taken_over(command: ScheduleActivity, event_id: int, reset: RunReset) -> ScheduleActivity:
    """The command of an activity that was pending at the point: it keeps the key that it had in the run before."""
    options = msgspec.structs.replace(command.options, tokens_before=reset.tokens)
    key = command.idempotency_key or f"{reset.keys}/{event_id}"
    return msgspec.structs.replace(command, options=options, idempotency_key=key)


class Past:
    """What the run before has scheduled beyond the point. Each of its keys is given once, to who asks for the same with
    the same arguments: of equal ones the earliest first."""

    __slots__ = ("_keys", "_tokens")

    def __init__(self, reset: RunReset) -> None:
        self._tokens = reset.tokens
        self._keys: defaultdict[tuple[str, str], deque[str]] = defaultdict(deque)
        for activity_type, args_digest, key in reset.past:
            self._keys[activity_type, args_digest].append(key)

    def take(
        self, activity_type: str, args: bytes, options: ActivityOptions, declared: str | None
    ) -> tuple[ActivityOptions, str | None]:
        """The options and the key for such an activity; the key is the declared one, or None where it is a new one.

        Whichever key it is, the run before may have used it too.
        """
        options = msgspec.structs.replace(options, tokens_before=self._tokens)
        if declared is None and (keys := self._keys.get((activity_type, digest(args)))):
            return options, keys.popleft()
        return options, declared


def past_of(scheduled: Iterable[tuple[int, ScheduleActivity]], keys: str) -> tuple[tuple[str, str, str], ...]:
    """`RunReset.past` of these: (event id, command)."""
    return tuple(
        (each.activity_type, digest(each.args), each.idempotency_key or f"{keys}/{event_id}")
        for event_id, each in scheduled
    )
