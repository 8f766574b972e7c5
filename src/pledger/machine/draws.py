"""Random values and ids that replay the same, and that one more draw elsewhere does not shift.

A stream drawn in turn breaks sleeping runs as soon as somebody adds a draw: every later value moves. So nothing here is
drawn in turn. A value is computed from where it is asked for:

    (run seed, what is drawn, spawn path of the task, calling function, how many were drawn there before)

or, under an explicit name, from (run seed, what is drawn, name, how many were drawn under it before). A name is for
values that must survive moving the code into another function or task; its ordinals are counted over the whole run.
Kinds are counted apart: a `random()` added before a `uuid4()` leaves the id as it is.

Values are reproducible, hence no secrets: whoever can read the run's history can compute them.
"""

from __future__ import annotations

import hashlib
import random
import uuid
from typing import Final

_KEY_BYTES: Final = 32
_INT_BYTES: Final = 8


class Draws:
    """The draws of one run. seed: any bytes, at least 16 random ones; the same seed gives the same values.

    In every method `path` is the spawn path of the asking task, `caller` the function that asks (any stable text, such
    as its qualified name) and `name` the explicit name, which takes the place of both.
    """

    def __init__(self, seed: bytes) -> None:
        # BLAKE2b takes keys up to 64 bytes; hashed first, seeds of every length are as good.
        key = hashlib.blake2b(seed).digest()
        self._keyed = hashlib.blake2b(key=key, digest_size=_KEY_BYTES, person=b"pledger-draws-1")
        self._drawn: dict[object, int] = {}

    def key(self, path: tuple[int, ...], caller: str, name: str | None = None, *, kind: str = "key") -> bytes:
        """32 bytes for this place, and one step of its ordinal. kind: what is drawn; each kind has its own ordinals."""
        place: object = (kind, path, caller) if name is None else (kind, name)
        ordinal = self._drawn.get(place, 0)
        self._drawn[place] = ordinal + 1
        digest = self._keyed.copy()
        digest.update(_part(kind.encode()))
        if name is None:
            # The number of parts comes first, so that no name can spell a place.
            digest.update(_number(len(path)) + b"".join(map(_number, path)) + _part(caller.encode()))
        else:
            digest.update(_number(-1) + _part(name.encode()))
        digest.update(_number(ordinal))
        return digest.digest()

    def uuid4(self, path: tuple[int, ...], caller: str, name: str | None = None) -> uuid.UUID:
        """An id of the form of version 4 (RFC 9562): 122 bits of the key."""
        return uuid.UUID(bytes=self.key(path, caller, name, kind="uuid4")[:16], version=4)

    def generator(self, path: tuple[int, ...], caller: str, name: str | None = None) -> random.Random:
        """A generator of its own, seeded from the key. What is drawn from it afterwards moves nobody else.

        Seeded with an integer: of all seeds this is the one whose `random()` the standard library promises to keep.
        """
        return random.Random(int.from_bytes(self.key(path, caller, name, kind="generator"), "big"))  # noqa: S311 - no key

    def entropy(self, n: int, path: tuple[int, ...], caller: str, name: str | None = None) -> bytes:
        """So many bytes. A longer draw at the same place starts with the shorter one."""
        return hashlib.shake_256(self.key(path, caller, name, kind="entropy")).digest(n)


# Every part says its own length, so that ("ab", "c") and ("a", "bc") differ.


def _part(text: bytes) -> bytes:
    return _number(len(text)) + text


def _number(value: int) -> bytes:
    return value.to_bytes(_INT_BYTES, "big", signed=True)
