"""Where large values are cut, what is shared, and the form of an outline, which stays readable for ever."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pledger.history import pieces


def name_of(piece: bytes) -> bytes:
    return hashlib.blake2b(piece, digest_size=pieces.NAME_BYTES).digest()


def as_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def message(number: int, size: int = 2_000) -> dict[str, str]:
    return {"role": "user", "content": f"{number} " + "x" * size}


def kept(*values: Any) -> tuple[dict[bytes, bytes], int]:
    """The pieces of all of them, and the bytes of their outlines."""
    there: dict[bytes, bytes] = {}
    told = 0
    for value in values:
        outline, made = pieces.outline(as_json(value), name_of)
        there |= made
        told += len(outline.entries)
    return there, told


def test_what_comes_to_a_transcript_is_all_that_is_new() -> None:
    before, _ = kept([[message(n) for n in range(20)]])
    after, _ = kept([[message(n) for n in range(21)]])
    assert [piece for name, piece in after.items() if name not in before and b"20 x" in piece] == [as_json(message(20))]
    assert len(after.keys() - before.keys()) <= 2, "and a branch that is full now"


def test_a_hundred_calls_cost_little_more_than_the_last_transcript() -> None:
    transcripts = [[[message(n, 8_000) for n in range(calls)]] for calls in range(1, 101)]
    there, told = kept(*transcripts)
    final = len(as_json(transcripts[-1]))
    assert sum(map(len, there.values())) + told < 1.1 * final < sum(map(len, map(as_json, transcripts))) / 40


def test_an_element_is_the_same_piece_alone_and_in_any_array() -> None:
    said = message(7, 5_000)
    alone, _ = kept(said)
    for other in ([said], [[message(1), said, message(2)]]):
        there, _ = kept(other)
        assert alone.keys() <= there.keys()


@pytest.mark.parametrize("size", [0, 1, 4_096, 16_384, 16_385, 200_000])
def test_text_without_lines_is_cut_by_length(size: int) -> None:
    data = as_json("x" * size)
    assert b"".join(pieces.cut(data)) == data
    assert max(map(len, pieces.cut(data))) <= pieces.PIECE_MAX


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=3_000),
        lambda inner: st.lists(inner, max_size=40) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
        max_leaves=60,
    ),
    st.integers(1, 50),
)
def test_what_is_cut_comes_together_again(value: Any, times: int) -> None:
    data = as_json([value] * times)
    told, made = pieces.outline(data, name_of)
    assert pieces.join(pieces.decode_outline(pieces.encode_outline(told)), made) == data


def test_an_outline_is_read_as_it_was_ever_written() -> None:
    """In bytes, which may never change: ledgers are full of them."""
    there = {b"a" * 24: b'{"n":1}', b"b" * 24: b"\xf0" + b"a" * 24 + b"\x01,"}
    written = (
        bytes.fromhex("00000000001a") + b"\x02[[" + b"\xf1" + b"b" * 24 + b"\xf1" + b"b" * 24 + b"\x08" + b'{"n":2}]'
    )
    assert pieces.join(pieces.decode_outline(written), there) == b'[[{"n":1},{"n":1},{"n":2}]'


@pytest.mark.parametrize(
    "entries",
    [b"\xf0" + b"a" * 23, b"\x80", b"\xff", b"\xf1" + b"c" * 24, b"\x01x"],
    ids=lambda entries: entries[:1].hex(),
)
def test_what_is_no_outline_is_refused(entries: bytes) -> None:
    """Also one that holds itself, and one of another length."""
    with pytest.raises(ValueError, match=r"."):
        pieces.join(pieces.Outline(5, entries), {b"c" * 24: b"\xf1" + b"c" * 24})
