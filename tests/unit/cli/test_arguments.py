from __future__ import annotations

import io
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from pledger import errors
from pledger.cli.arguments import read_arguments


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("-5", -5),
        ('"text"', "text"),
        ("null", None),
        ('{"id": 3544790567247868102}', {"id": 3544790567247868102}),
        ("9" * 400, int("9" * 400)),
        ("0.2345678901234568", 0.2345678901234568),
        ("12.10", 12.1),
        ("1e22", 1e22),
        ('{"$type": "Decimal", "value": "0.12345678901234567890"}', Decimal("0.12345678901234567890")),
        ("[1, [2]]", [1, [2]]),
    ],
)
def test_values_keep_every_digit(text: str, value: Any) -> None:
    [read] = read_arguments([text])
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("abc", "A text carries its own quotes: '\"abc\"'"),
        ("it's", "'\"it'\\''s\"'"),
        ("{'id': 7}", "at line 1, column 2"),
        ('{"a": 1,}', "at line 1, column "),
        ("", "line 1, column 1"),
        ("--wiat", "no such option"),
        ("NaN", "no JSON number"),
        ("[Infinity]", "no JSON number"),
        ("0.12345678901234567890", "would be rounded to 0.12345678901234568. Write it as a string"),
        ("1e400", "would be rounded to inf"),
        ("[" * 200 + "]" * 200, "nested deeper"),
        ("[" * 100_000, "cannot be used"),
        ("9" * 5_000, "4300 digits"),
        ('"\\ud83d"', "argument 2"),
    ],
)
def test_what_is_no_value_is_told_what_is_wrong(text: str, told: str) -> None:
    with pytest.raises(errors.UsageError, match="argument 2") as caught:
        read_arguments(["1", text])
    assert told in str(caught.value)
    assert len(str(caught.value)) < 1_000


def test_a_value_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "order.json").write_bytes(b'{"name": "M\xc3\xbcller"}\n')
    assert read_arguments([f"@{tmp_path / 'order.json'}"]) == [{"name": "Müller"}]
    with pytest.raises(errors.UsageError, match=r"missing\.json cannot be read"):
        read_arguments(["@missing.json"])
    (tmp_path / "latin.json").write_bytes(b'"M\xfcller"')
    with pytest.raises(errors.UsageError, match=r"argument 1 \(from .*latin\.json\) cannot be used"):
        read_arguments([f"@{tmp_path / 'latin.json'}"])


def test_a_value_from_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"[1, 2]")))
    assert read_arguments(["-"]) == [[1, 2]]
