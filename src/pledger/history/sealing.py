"""Where payloads stand in what a ledger keeps, and the form of those that do not stand there as plain JSON.

A *sealed* payload begins with a byte that no JSON can begin with, and says what was done to it last; inside, it may be
sealed again. `map_event` and its like give every payload of a record, with its place, to a function, and put what that
gives in its stead: sealing and opening are both of that kind. What is no payload (ids, types, names, times, options,
the messages of failures) is never touched.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

import msgspec

from pledger.errors import UsageError
from pledger.history.events import Event
from pledger.history.failures import Failure

E = TypeVar("E", bound=Event)

#: 0xC1 is in no UTF-8 text, and begins nothing in MessagePack.
MARK: Final = b"\xc1Pl"
#: What was done: the value is kept in pieces, and this is its outline. Codecs have names of their own.
IN_PIECES: Final = "pieces"

#: Bytes of events that are no payloads.
_PLAIN: Final = frozenset({"seed"})


class Place(NamedTuple):
    """Where a payload stands. position: in the run, like "7.result"; run_id is empty for what is no run's, as a message
    of a chain."""

    namespace: str
    workflow_id: str
    run_id: str
    position: str

    def at(self, position: str) -> Place:
        return self._replace(position=position)


#: Of a payload whose place nobody asks for: where there are no codecs.
NOWHERE: Final = Place("", "", "", "")


class PayloadCodec(Protocol):
    """What is done to payloads on their way to the ledger, and undone on their way back; by any process, later.

    name: how it is told in what it has written; of letters, digits and dashes, at most 40.
    """

    name: str

    def encode(self, data: bytes, place: Place) -> bytes | None:
        """None to leave it as it is."""
        ...

    def decode(self, data: bytes, place: Place) -> bytes:
        """What `encode` was given, at the same place. Raises CodecError."""
        ...


@runtime_checkable
class NeedsOthers(Protocol):
    """What a codec has besides that needs what may be away: keys, another store."""

    def key_mark(self, key_id: str) -> str:
        """Tells what there is by that id (`CodecError.key_id`) now from what there was: one key from another, and from
        none, which is ""; and nothing of the key."""
        ...


@runtime_checkable
class KeepsSecrets(NeedsOthers, Protocol):
    """What a codec has besides that encrypts, and binds what it encrypts to its place."""

    def secret(self, place: Place) -> bytes:
        """The same for all runs of a workflow id, as long as the same key is used. Raises CodecError."""
        ...

    def digest_secret(self, place: Place) -> bytes:
        """The same for all starts of a workflow id. Raises CodecError."""
        ...


#: As codecs are named.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,39}")


def check_codecs(codecs: Sequence[PayloadCodec]) -> tuple[PayloadCodec, ...]:
    """The chain. Raises UsageError."""
    chain = tuple(codecs)
    for codec in chain:
        name = getattr(codec, "name", None)
        if not isinstance(name, str) or _NAME.fullmatch(name) is None or name == IN_PIECES:
            raise UsageError(
                f"codecs=[...] has {codec!r}, which is no codec: one has a name of letters, digits and dashes, "
                "`encode` and `decode`, as those of pledger.codecs have"
            )
        if not (callable(getattr(codec, "encode", None)) and callable(getattr(codec, "decode", None))):
            raise UsageError(f"the codec {name!r} must have `encode` and `decode`, as those of pledger.codecs have")
    if len({codec.name for codec in chain}) < len(chain):
        raise UsageError("codecs=[...] has two of one name: what they have written could not be told apart")
    return chain


#: Gives what is to stand in the payload's stead.
Change: TypeAlias = Callable[[bytes, Place], bytes]


def seal(done: str, data: bytes) -> bytes:
    """done: by what, in ASCII."""
    name = done.encode("ascii")
    return MARK + bytes((len(name),)) + name + data


def is_sealed(data: bytes) -> bool:
    return data.startswith(MARK)


def unseal(data: bytes) -> tuple[str, bytes]:
    """What was done last, and to what."""
    start = len(MARK) + 1
    end = start + data[start - 1]
    return data[start:end].decode("ascii", "replace"), data[end:]


@functools.cache
def _fields(kind: type[Event]) -> tuple[tuple[str, bool], ...]:
    """The payloads of an event, and its failures (True)."""
    found = []
    for field in msgspec.structs.fields(kind):
        if field.type in (bytes, bytes | None) and field.name not in _PLAIN:
            found.append((field.name, False))
        elif field.type in (Failure, Failure | None):
            found.append((field.name, True))
    return tuple(found)


def map_event(event: E, event_id: int, place: Place, change: Change, least: int = 0) -> E:
    """place: its position does not matter. least: what is shorter is left as it is."""
    changed: dict[str, Any] = {}
    for name, is_failure in _fields(type(event)):
        value = getattr(event, name)
        if value is None or (not is_failure and len(value) < least):
            continue
        at = place.at(f"{event_id}.{name}")
        new = map_failure(value, at, change, least) if is_failure else change(value, at)
        if new is not value:
            changed[name] = new
    return msgspec.structs.replace(event, **changed) if changed else event


def map_events(events: Sequence[E], first_event_id: int, place: Place, change: Change, least: int = 0) -> list[E]:
    return [map_event(event, event_id, place, change, least) for event_id, event in enumerate(events, first_event_id)]


def map_failure(failure: Failure, place: Place, change: Change, least: int = 0) -> Failure:
    """Its details and those of its causes."""
    cause = failure.cause and map_failure(failure.cause, place.at(f"{place.position}.cause"), change, least)
    details = failure.details
    if details is not None and len(details) >= least:
        details = change(details, place.at(f"{place.position}.details"))
    if cause is failure.cause and details is failure.details:
        return failure
    return msgspec.structs.replace(failure, cause=cause, details=details)
