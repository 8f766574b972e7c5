"""Durations, times, values and failures as people read them in a terminal. Pure, and without colours.

Everything that comes out of the ledger passes through `printable`: workflow ids, payloads and error messages come from
outside, and must not be able to steer the reader's terminal.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, tzinfo
from typing import Final

from pledger.history.failures import Failure
from pledger.history.times import utc

_SECOND: Final = 1_000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR

#: Below this, tenths of a second still tell something.
_FINE_MS: Final = 10 * _SECOND
#: Characters of a call's arguments that are shown however long its name is.
_ARGS_MIN: Final = 6


def worker_command(task_queue: str, namespace: str) -> str:
    """The command that starts a worker for a queue."""
    return (
        "pledger worker your_module"
        f"{'' if task_queue == 'default' else f' --task-queue {task_queue}'}"
        f"{'' if namespace == 'default' else f' --namespace {namespace}'}"
    )


def duration(ms: float) -> str:
    """Two units at most: `35 ms`, `2.1 s`, `42 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    whole = round(ms)
    if whole < _SECOND:
        return f"{whole} ms"
    if whole < _FINE_MS:
        return f"{whole / _SECOND:.1f} s"
    if whole < _MINUTE:
        return f"{whole // _SECOND} s"
    for unit, name, next_unit, next_name in ((_DAY, "d", _HOUR, "h"), (_HOUR, "h", _MINUTE, "min")):
        if whole >= unit:
            return _two_units(whole, unit, name, next_unit, next_name)
    return _two_units(whole, _MINUTE, "min", _SECOND, "s")


def _two_units(ms: int, unit: int, name: str, next_unit: int, next_name: str) -> str:
    rest = ms % unit // next_unit
    return f"{ms // unit} {name}" + (f" {rest} {next_name}" if rest else "")


def moment(ms: int, now_ms: int, *, zone: tzinfo | None = None) -> str:
    """A time on the reader's clock, to the second; with its date unless that is today's. zone: None for the local."""
    time, now = _at(ms, zone), _at(now_ms, zone)
    return f"{time:%H:%M:%S}" if time.date() == now.date() else f"{time:%Y-%m-%d %H:%M:%S}"


def fine_moment(ms: int, now_ms: int, *, zone: tzinfo | None = None) -> str:
    """As `moment`, to the millisecond."""
    return f"{moment(ms, now_ms, zone=zone)}.{ms % 1000:03}"


def distance(ms: int, now_ms: int) -> str:
    """`in 3 s`, `12 s ago`, `now`."""
    ahead = ms - now_ms
    if ahead == 0:
        return "now"
    return f"in {duration(ahead)}" if ahead > 0 else f"{duration(-ahead)} ago"


def _at(ms: int, zone: tzinfo | None) -> datetime:
    return utc(ms).astimezone(zone)


def milliseconds(time: datetime) -> int:
    """Since 1970, as the ledger counts."""
    return round(time.timestamp() * 1000)


def count(number: int, one: str, many: str | None = None) -> str:
    """`1 run`, `2,000 runs`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def printable(text: str) -> str:
    """The text with control, bidirectional and other invisible characters written out; line breaks and tabs stay."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def one_line(text: str, limit: int) -> str:
    """The first line, at most `limit` characters of it."""
    line, _, rest = printable(text).strip().partition("\n")
    if len(line) > limit:
        return line[: limit - 1] + "…"
    return line + " …" if rest and len(line) + 2 <= limit else line


def bounded(text: str, limit: int) -> str:
    """Every line of the text, at most `limit` characters of each."""
    return "\n".join(one_line(line, limit) if len(line) > limit else line for line in text.splitlines())


def preview(payload: bytes, limit: int) -> str:
    """The beginning of a payload's JSON."""
    # A character is at most 4 bytes: a payload of megabytes is not decoded for the few that are shown.
    text = printable(payload[: 4 * limit].decode("utf-8", "ignore"))
    return text if len(text) <= limit and len(payload) <= 4 * limit else text[: limit - 1] + "…"


def call(name: str, args: bytes, limit: int) -> str:
    """A call as code shows it: `charge_card({"id":7})`, as a whole within the limit. args: a JSON array."""
    name = one_line(name, limit)
    return f"{name}({preview(args.strip()[1:-1], max(_ARGS_MIN, limit - len(name) - 2))})"


def attribute(name: str, value: object) -> str:
    """A search attribute as a filter would have it: `amount = 250`, `region = 'eu'`; `no region` once it is gone."""
    match value:
        case None:
            return f"no {name}"
        case bool():
            return f"{name} = {str(value).lower()}"
        case datetime():
            return f"{name} = '{value.isoformat(timespec='seconds')}'"
        case list() | tuple():
            return f"{name} = {', '.join(map(repr, value))}"
        case _:
            return f"{name} = {value!r}"


def failure_line(failure: Failure, limit: int) -> str:
    """`CardTimeout: gateway did not answer`. What only wraps another failure, or a cancellation, names no class."""
    if failure.kind in ("activity", "cancelled"):
        return one_line(failure.message, limit)
    return one_line(f"{failure.type}: {failure.message}" if failure.message else failure.type, limit)


def cause_lines(failure: Failure | None, told: str, limit: int) -> Iterator[str]:
    """A line for the failure and each of its causes that `told` does not say already."""
    while failure is not None:
        line = failure_line(failure, limit)
        if line not in told:
            yield line
            told = line
        failure = failure.cause
