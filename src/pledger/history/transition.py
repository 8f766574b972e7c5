"""A transition: one atomic append to one run's history, and the chain of checksums over them.

Recorded as its inputs, then its commands, with one time stamp and the identity of the code that made it. The checksum
of a row covers the one before it and its own position, so that a changed, lost, swapped or truncated row is found; the
head of the chain is kept in the run's row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

import msgspec

from pledger.history.events import ChildClosed, Command, Event, Input, RunStarted

#: Version of the saved form; an older one is brought up by single steps in `decode`.
FORMAT: Final = 1

#: The head of an empty history.
CHAIN_START: Final = bytes(8)


class Transition(msgspec.Struct, array_like=True, frozen=True):
    """time_ms: what `workflow.now()` returns throughout. code: the identity of the code that made it, or None where
    it is the same as in the transition before. continues: the code asked for more at this time than one transition
    takes; the rest is in the next ones, which have no inputs. suggests: the code was told that its history has grown so
    long that a successor had better go on."""

    format: int
    time_ms: int
    code: str | None
    inputs: tuple[Input, ...]
    commands: tuple[Command, ...] = ()
    continues: bool = False
    suggests: bool = False

    def events(self) -> tuple[Event, ...]:
        """Inputs, then commands: in the order of their event ids."""
        return (*self.inputs, *self.commands)


class StoredTransition(msgspec.Struct, frozen=True):
    """A transition as a store keeps it. first_event_id: the position of its first event; body: `encode`d.

    kept: what the store has in place of the body, where payloads in it are sealed (see `sealing`); the checksum is over
    that.
    """

    first_event_id: int
    body: bytes
    checksum: bytes
    kept: bytes | None = None


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Transition)

#: A start that waits for its first worker. Raises msgspec.MsgspecError when it is damaged.
decode_started: Final = msgspec.msgpack.Decoder(RunStarted).decode

#: What the parent of a run that has ended is told. Raises the same.
decode_closed: Final = msgspec.msgpack.Decoder(ChildClosed).decode


#: The inputs of `encode_inputs`. Raises msgspec.MsgspecError when they are damaged.
decode_inputs: Final = msgspec.msgpack.Decoder(tuple[Input, ...]).decode


def encode(transition: Transition) -> bytes:
    """The body of a transition."""
    parts = (transition.format, transition.time_ms, transition.code, transition.inputs, transition.commands)
    return _encode(parts, continues=transition.continues, suggests=transition.suggests)


def encode_parts(
    time_ms: int,
    code: str | None,
    inputs: Sequence[Input],
    commands: Sequence[Command],
    *,
    continues: bool = False,
    suggests: bool = False,
) -> bytes:
    """The body of a new transition, without making one first."""
    parts = (FORMAT, time_ms, code, inputs, commands)
    if continues or suggests:
        return _encode(parts, continues=continues, suggests=suggests)
    return _encoder.encode(parts)


def _encode(parts: tuple[object, ...], *, continues: bool, suggests: bool) -> bytes:
    """Flags that are not set take no room at the end."""
    return _encoder.encode((*parts, continues, True) if suggests else (*parts, True) if continues else parts)


def encode_event(event: Event) -> bytes:
    """One event by itself, as a message or a task row keeps it."""
    return _encoder.encode(event)


def encode_inputs(inputs: Sequence[Input]) -> bytes:
    """Inputs that wait for a run, as a message keeps them."""
    return _encoder.encode(inputs)


def decode(body: bytes) -> Transition:
    """The transition of a stored body. Raises msgspec.MsgspecError when it is damaged."""
    return _decoder.decode(body)


def checksum(previous: bytes, first_event_id: int, body: bytes) -> bytes:
    """The next link of the chain: 8 bytes.

    BLAKE2b, as the standard library has it in C: a 64-bit digest is ample against accidents, which is what it is for;
    tampering by somebody who can write the file is the audit log's subject, not this one's.
    """
    return hashlib.blake2b(body, digest_size=8, key=previous + first_event_id.to_bytes(8, "big")).digest()
