"""The state of a dependency: its retry budget and its circuit breaker. Pure; each store keeps the row and asks here.

*Budget.* A bucket of tokens, of which a retry takes one. A call that is no retry adds `ratio` of a token, and each
second adds `minimum_per_second`. It holds what the calls of the window have added, and one second's minimum: so over
any time there are no more retries than ratio * calls + minimum_per_second * seconds, beyond what was in it.

*Breaker.*

                  a share of the attempts failed
        closed ------------------------------------> open <-------+
          ^                                            |          | those let through fail:
          | nobody waits any more         its pause is over       | a longer pause
          |                                            v          |
          +--------------------------------------- half open -----+
                                     lets through 1, then 2, 4, 8, ... at a time

From any of them an operator comes to *paused*, and from there, or from open, to half open or straight to closed.

Half open lets one attempt through at a time, the probe. As often as so many have succeeded as may run at a time, that
is twice as many; once they have not all been in use meanwhile, or for a window, nobody waits for the breaker, and it
closes. Only attempts that began since it opened count: what comes back late says nothing of how things are now.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from pledger.engine.port.records import Record
from pledger.history.budget import BudgetRule

Phase: TypeAlias = Literal["closed", "open", "half_open", "paused"]

#: The window is counted in so many parts, and moves on by one of them.
PARTS: Final = 10
#: Changes of phase that are remembered.
CHANGES_MAX: Final = 20
#: Who lets more through than this at a time lets all through.
LIMIT_MAX: Final = 1 << 16
_NOBODY_WAITS: Final = "attempts succeed again, and fewer than {:,} at a time are asked for"
#: Of what failed last, and of what an operator says.
TEXT_MAX: Final = 500


class Counts(Record, frozen=True, array_like=True):
    """Of one part of the window, by its number. calls: first attempts that began; retries: others, as they were let
    through. succeeded, failed: attempts by how they ended, whose phase was this one's."""

    part: int
    calls: int = 0
    retries: int = 0
    succeeded: int = 0
    failed: int = 0


class Change(Record, frozen=True, array_like=True):
    """A change of phase. by: the operator who asked for it, or nobody."""

    at_ms: int
    phase: Phase
    reason: str
    by: str = ""


class Tally(Record, frozen=True):
    """What a worker has to report. opened: of attempts that began when the circuit had opened so often. calls: of them
    that were no retries, as they began; succeeded, failed: as they ended. last_failure: of the latter, in a line."""

    opened: int
    calls: int = 0
    succeeded: int = 0
    failed: int = 0
    last_failure: str = ""


class Dependency(Record, frozen=True, omit_defaults=True):
    """rule: its numbers; activity_types: the activities that state it. Both as workers said when they started.

    phase: since since_ms; reason: why, by: the operator who asked for that. opened: how often attempts were stopped, by
    the breaker or an operator. until_ms: when an open one lets the first probe through; when a half open one closes if
    fewer than its limit are asked for until then. pause_ms: how long the last pause was to be. limit: how many attempts
    a half open one lets through at a time; is_full: they have all been in use since it is so many; succeeded, failed:
    attempts since then.
    tokens: of retries, as of filled_ms. counts: of the window, oldest first. changes: newest last.
    """

    rule: BudgetRule
    activity_types: tuple[str, ...] = ()
    phase: Phase = "closed"
    since_ms: int = 0
    reason: str = ""
    by: str = ""
    opened: int = 0
    until_ms: int = 0
    pause_ms: int = 0
    limit: int = 0
    is_full: bool = False
    succeeded: int = 0
    failed: int = 0
    tokens: float = 0.0
    filled_ms: int = 0
    counts: tuple[Counts, ...] = ()
    changes: tuple[Change, ...] = ()
    last_failure: str = ""

    @property
    def total(self) -> Counts:
        """Of the whole window."""
        return Counts(
            0,
            sum(each.calls for each in self.counts),
            sum(each.retries for each in self.counts),
            sum(each.succeeded for each in self.counts),
            sum(each.failed for each in self.counts),
        )

    @property
    def concurrency(self) -> int | None:
        """How many attempts may run at a time of those that begin from now on; None: as many as like."""
        match self.phase:
            case "closed":
                return None
            case "half_open":
                return self.limit
            case _:
                return 0


#: As it stands in a row.
encode: Final = msgspec.json.Encoder().encode
decode: Final = msgspec.json.Decoder(Dependency).decode


def new(rule: BudgetRule, now_ms: int) -> Dependency:
    """One of which nothing is known."""
    return Dependency(rule, since_ms=now_ms, tokens=_least(rule), filled_ms=now_ms)


def stated(there: Dependency | None, rule: BudgetRule, activity_types: Sequence[str], now_ms: int) -> Dependency:
    """With what the code of a worker says that has just started. One without a breaker any more is closed."""
    found = seen(there or new(rule, now_ms), now_ms)
    counts = found.counts if found.rule.window_ms == rule.window_ms else ()
    types = tuple(sorted({*found.activity_types, *activity_types}))
    found = replace(found, rule=rule, activity_types=types, counts=counts)
    if rule.failure_ratio is None and found.phase in {"open", "half_open"}:
        found = _closed(found, now_ms, "the code states no circuit breaker any more")
    return found


def seen(found: Dependency, now_ms: int) -> Dependency:
    """As of now. Who has waited for the row may come with a time before that of who had it; but where the store's clock
    has gone back, what it was to bring is not waited for any longer than from now on."""
    rule = found.rule
    if now_ms < found.filled_ms <= now_ms + rule.window_ms:
        now_ms = found.filled_ms
    part = _part(rule, now_ms)
    counts = tuple(each for each in found.counts if part - PARTS < each.part <= part)
    passed_s = max(0, now_ms - found.filled_ms) / 1000
    tokens = found.tokens + passed_s * rule.minimum_per_second
    found = replace(found, counts=counts, filled_ms=now_ms)
    found = replace(found, tokens=min(tokens, _room(found)))
    return _in_time(found, now_ms)


def is_ahead(found: Dependency, seen: Dependency) -> bool:
    """Whether the row is ahead of the store's clock, which has gone back. seen: it as of now."""
    return seen.filled_ms < found.filled_ms


def noted(found: Dependency, tallies: Sequence[Tally], now_ms: int) -> Dependency:
    """With what a worker reports."""
    found = seen(found, now_ms)
    for each in tallies:
        found = _counted(found, each, now_ms)
    if found.rule.failure_ratio is None:
        return found
    if found.phase == "closed":
        return _judged_closed(found, found.rule.failure_ratio, now_ms)
    if found.phase == "half_open":
        return _judged_half_open(found, found.rule.failure_ratio, now_ms)
    return found


def granted(found: Dependency, *, is_retry: bool, in_use: int) -> Dependency:
    """With an attempt let through, by `seen` of now. in_use: of half open ones, how many run now."""
    if is_retry:
        part = _part(found.rule, found.filled_ms)
        found = replace(found, tokens=found.tokens - 1, counts=_with(found.counts, Counts(part, retries=1)))
    if found.phase == "half_open" and in_use >= found.limit and not found.is_full:
        found = replace(found, is_full=True)
    return found


def retry_due_ms(found: Dependency) -> int | None:
    """When there is a token for a retry, if no calls add to it; None when there is one now. By `seen` of now."""
    if found.tokens >= 1:
        return None
    return found.filled_ms + math.ceil((1 - found.tokens) / found.rule.minimum_per_second * 1000)


# What operators do ----------------------------------------------------------------------------------------------------


def paused(found: Dependency, reason: str, by: str, now_ms: int) -> Dependency:
    """No attempt begins until it is resumed. One that is paused stays so, with its first reason."""
    found = seen(found, now_ms)
    if found.phase == "paused":
        return found
    return _entered(replace(found, opened=found.opened + 1), "paused", now_ms, reason, by)


def resumed(found: Dependency, reason: str, by: str, now_ms: int, *, at_once: bool) -> Dependency:
    """Attempts begin again: with one probe at a time, or all at once. Without a breaker it is all at once."""
    found = seen(found, now_ms)
    if at_once or found.rule.failure_ratio is None:
        return found if found.phase == "closed" else _closed(found, now_ms, reason, by)
    if found.phase in {"closed", "half_open"}:
        return found
    return _half_open(found, now_ms, reason, by)


# Parts ----------------------------------------------------------------------------------------------------------------


def _in_time(found: Dependency, now_ms: int) -> Dependency:
    """With what the time alone brings."""
    if found.phase not in {"open", "half_open"}:
        return found
    wait_ms = found.pause_ms if found.phase == "open" else found.rule.window_ms
    if found.until_ms > now_ms + wait_ms:
        return replace(found, until_ms=now_ms + wait_ms)
    # As of when it came to that: whoever looks, and whenever, sees the same.
    at_ms = found.until_ms
    if at_ms > now_ms:
        return found
    if found.phase == "open":
        return _half_open(found, at_ms, "the pause is over: one attempt at a time may try")
    if found.limit > 1 and not found.is_full:
        return _closed(found, at_ms, _NOBODY_WAITS.format(found.limit))
    return found


def _counted(found: Dependency, tally: Tally, now_ms: int) -> Dependency:
    is_present = tally.opened == found.opened
    succeeded, failed = (tally.succeeded, tally.failed) if is_present else (0, 0)
    counts = Counts(_part(found.rule, now_ms), tally.calls, 0, succeeded, failed)
    found = replace(
        found,
        counts=_with(found.counts, counts),
        tokens=found.tokens + tally.calls * found.rule.ratio,
        succeeded=found.succeeded + succeeded,
        failed=found.failed + failed,
        last_failure=tally.last_failure[:TEXT_MAX] or found.last_failure,
    )
    return replace(found, tokens=min(found.tokens, _room(found)))


def _judged_closed(found: Dependency, ratio: float, now_ms: int) -> Dependency:
    total = found.total
    ended = total.succeeded + total.failed
    if ended < found.rule.minimum_calls or total.failed < ratio * ended:
        return found
    within = f"{found.rule.window_ms / 1000:g} s"
    reason = f"{total.failed:,} of {ended:,} attempts failed within {within}"
    return _opened(found, now_ms, found.rule.pause_ms, reason)


def _judged_half_open(found: Dependency, ratio: float, now_ms: int) -> Dependency:
    limit = found.limit
    if found.failed >= max(1, math.ceil(ratio * limit)):
        ended = found.succeeded + found.failed
        what = (
            "the probe failed" if limit == 1 else f"{found.failed:,} of {ended:,} attempts failed that were let through"
        )
        longer = max(found.rule.pause_ms, 2 * found.pause_ms)
        return _opened(found, now_ms, min(longer, found.rule.pause_max_ms), what)
    if found.succeeded < limit:
        return found
    if found.is_full and 2 * limit <= LIMIT_MAX:
        return _stepped(found, now_ms, 2 * limit)
    return _closed(found, now_ms, _NOBODY_WAITS.format(limit))


def _opened(found: Dependency, now_ms: int, pause_ms: int, reason: str) -> Dependency:
    if found.last_failure:
        reason = f"{reason}, the last one with {found.last_failure}"
    found = replace(found, opened=found.opened + 1, pause_ms=pause_ms, until_ms=now_ms + pause_ms)
    return _entered(found, "open", now_ms, reason)


def _half_open(found: Dependency, now_ms: int, reason: str, by: str = "") -> Dependency:
    return _entered(_stepped(found, now_ms, 1), "half_open", now_ms, reason, by)


def _stepped(found: Dependency, now_ms: int, limit: int) -> Dependency:
    until_ms = now_ms + found.rule.window_ms
    return replace(found, limit=limit, is_full=False, succeeded=0, failed=0, until_ms=until_ms)


def _closed(found: Dependency, now_ms: int, reason: str, by: str = "") -> Dependency:
    """What has failed before does not count any more."""
    counts = tuple(replace(each, succeeded=0, failed=0) for each in found.counts)
    found = replace(found, counts=counts, limit=0, is_full=False, succeeded=0, failed=0, pause_ms=0, until_ms=0)
    return _entered(found, "closed", now_ms, reason, by)


def _entered(found: Dependency, phase: Phase, now_ms: int, reason: str, by: str = "") -> Dependency:
    reason = reason[:TEXT_MAX]
    changes = (*found.changes, Change(now_ms, phase, reason, by))[-CHANGES_MAX:]
    return replace(found, phase=phase, since_ms=now_ms, reason=reason, by=by, changes=changes)


def _part(rule: BudgetRule, now_ms: int) -> int:
    return now_ms * PARTS // rule.window_ms


def _with(counts: tuple[Counts, ...], more: Counts) -> tuple[Counts, ...]:
    """more: of the newest part."""
    if not counts or counts[-1].part != more.part:
        return (*counts, more)
    last = counts[-1]
    added = Counts(
        last.part,
        last.calls + more.calls,
        last.retries + more.retries,
        last.succeeded + more.succeeded,
        last.failed + more.failed,
    )
    return (*counts[:-1], added)


def _least(rule: BudgetRule) -> float:
    """Of tokens there is always room for so many."""
    return max(1.0, rule.minimum_per_second)


def _room(found: Dependency) -> float:
    return _least(found.rule) + found.rule.ratio * sum(each.calls for each in found.counts)
