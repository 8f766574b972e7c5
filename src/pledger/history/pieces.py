"""Large values in pieces: where a value is cut, and how the pieces that it is made of are told.

The rule: a value that begins as an earlier one did shares its pieces with it, and what comes to it costs what it is
long. So a transcript that grows by a message at each call costs linear space, though every call has all of it as its
argument.

Cuts are found from the front, so that what follows moves none of them. They fall behind an element of a JSON array (the
comma between two stands by itself), so that a message is the same piece in any transcript, and as a result alone; where
elements are longer, behind a line; where there is neither, after a fixed length. Measured against rolling hashes
(ADR 0031): those leave half a piece behind at each call, which here is nothing.

A value is told by an *outline*: the names of its pieces, in order, with what is too short to be one written out. As the
outline of a growing value grows too, every WIDTH entries of it are a piece themselves: a tree whose full branches are
never written again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, Protocol

#: Bytes of the name of a piece: no two pieces that anybody can make have one.
NAME_BYTES: Final = 24
#: A value of more bytes is kept in pieces: a row of more spills out of its page of SQLite anyway, and what a model says
#: in 1,000 tokens is shared with the transcript that it goes into.
LARGE: Final = 4 * 1024
#: An element of an array is no piece of its own below this: a row costs about a hundred bytes beside what it holds.
ELEMENT_MIN: Final = 1024
#: A piece ends with a line from here on. With it and the name it just fits a page of SQLite.
LINE_MIN: Final = 3 * 1024
#: No piece is longer: text without any line, as of an image.
PIECE_MAX: Final = 16 * 1024
#: What is no longer than this is written out in the outline.
WRITTEN_OUT_MAX: Final = 63
#: Entries of an outline that are a piece by themselves: 16 names with the commas between them.
WIDTH: Final = 32

#: Behind an element of an array, or a line of text in a string.
_ENDS: Final = re.compile(rb"[}\]](?=[,\]])|\\n")
#: With it a line ends that stands in JSON.
_N: Final = ord("n")
_OPENING: Final = re.compile(rb"\[{1,8}")

#: Of an entry: the first byte says what follows. Others say how many bytes are written out.
_PIECE: Final = 0xF0
_BRANCH: Final = 0xF1


class Outline(NamedTuple):
    """size_bytes: of the value. entries: what it is made of, see `read_entries`."""

    size_bytes: int
    entries: bytes


class Entry(NamedTuple):
    """name: of a piece; is_branch: which holds further entries. Without a name: `text` is written out."""

    name: bytes | None
    is_branch: bool
    text: bytes


class Gathered(Protocol):
    """Pieces by their names. What it raises for one that cannot be had, who joins them raises."""

    def __getitem__(self, name: bytes, /) -> bytes: ...


def cut(data: bytes) -> Iterator[bytes]:
    """The value in pieces, in order; the shortest are to be written out."""
    opening = _OPENING.match(data)
    start = 0
    if opening is not None:
        start = opening.end()
        yield data[:start]
    for found in _ENDS.finditer(data, start):
        end = found.end()
        while end - start > PIECE_MAX:
            yield data[start : start + PIECE_MAX]
            start += PIECE_MAX
        least = LINE_MIN if data[end - 1] == _N else ELEMENT_MIN
        if end - start < least:
            continue
        yield data[start:end]
        start = end
        if data[start : start + 1] == b",":
            yield b","
            start += 1
    while start < len(data):
        yield data[start : start + PIECE_MAX]
        start += PIECE_MAX


def outline(data: bytes, name_of: Callable[[bytes], bytes]) -> tuple[Outline, dict[bytes, bytes]]:
    """The outline of a value, and its pieces by their names: branches of the tree too."""
    pieces: dict[bytes, bytes] = {}

    def keep(piece: bytes, kind: int) -> bytes:
        name = name_of(piece)
        pieces[name] = piece
        return bytes((kind,)) + name

    level = [
        bytes((len(piece),)) + piece if len(piece) <= WRITTEN_OUT_MAX else keep(piece, _PIECE) for piece in cut(data)
    ]
    # What is left over at each level stands behind the branches above it.
    tails: list[bytes] = []
    while len(level) >= WIDTH:
        full = len(level) - len(level) % WIDTH
        tails.insert(0, b"".join(level[full:]))
        level = [keep(b"".join(level[at : at + WIDTH]), _BRANCH) for at in range(0, full, WIDTH)]
    return Outline(len(data), b"".join(level) + b"".join(tails)), pieces


def read_entries(entries: bytes) -> list[Entry]:
    """Raises ValueError for what is no outline."""
    found: list[Entry] = []
    at = 0
    while at < len(entries):
        kind = entries[at]
        at += 1
        if kind in (_PIECE, _BRANCH):
            name = entries[at : at + NAME_BYTES]
            at += NAME_BYTES
            if len(name) < NAME_BYTES:
                raise ValueError("a name is cut off")
            found.append(Entry(name, kind == _BRANCH, b""))
        elif kind <= WRITTEN_OUT_MAX:
            found.append(Entry(None, False, entries[at : at + kind]))  # noqa: FBT003 - it has no name
            at += kind
        else:
            raise ValueError(f"an entry of kind {kind}")
    return found


def names_in(entries: bytes) -> list[bytes]:
    return [entry.name for entry in read_entries(entries) if entry.name is not None]


def join(told: Outline, pieces: Gathered) -> bytes:
    """The value. Raises what `pieces` raises for one that is not there, and ValueError for what is no outline."""
    parts: list[bytes] = []
    _gather(told.entries, pieces, parts, DEPTH_MAX)
    data = b"".join(parts)
    if len(data) != told.size_bytes:
        raise ValueError(f"its pieces have {len(data):,} bytes, and it has {told.size_bytes:,}")
    return data


#: Levels of a tree: more than any value has that fits into memory.
DEPTH_MAX: Final = 12


def _gather(entries: bytes, pieces: Gathered, parts: list[bytes], depth: int) -> None:
    if not depth:
        raise ValueError("it is in itself")
    for entry in read_entries(entries):
        if entry.name is None:
            parts.append(entry.text)
        elif entry.is_branch:
            _gather(pieces[entry.name], pieces, parts, depth - 1)
        else:
            parts.append(pieces[entry.name])


def encode_outline(told: Outline) -> bytes:
    return told.size_bytes.to_bytes(6, "big") + told.entries


def decode_outline(data: bytes) -> Outline:
    return Outline(int.from_bytes(data[:6], "big"), data[6:])
