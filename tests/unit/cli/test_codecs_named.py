"""The chain of codecs that PLEDGER_CODECS names for the command line."""

from __future__ import annotations

import base64
import sys
import types

import pytest

from pledger import errors
from pledger.cli.ledger import configured_codecs
from pledger.codecs import AesGcm, KeyRing, Zstd


@pytest.fixture(autouse=True)
def _module(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("their_ledger")
    module.codecs = [Zstd()]  # type: ignore[attr-defined]
    module.made = lambda: [Zstd(), AesGcm(KeyRing({"k": base64.b64decode("A" * 42 + "A=")}))]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "their_ledger", module)


@pytest.mark.parametrize(
    ("named", "names"),
    [
        ("", []),
        ("their_ledger", ["zstd"]),
        ("their_ledger:codecs", ["zstd"]),
        ("their_ledger:made", ["zstd", "aes-gcm"]),
    ],
)
def test_a_list_or_what_gives_one(monkeypatch: pytest.MonkeyPatch, named: str, names: list[str]) -> None:
    monkeypatch.setenv("PLEDGER_CODECS", named)
    assert [codec.name for codec in configured_codecs()] == names


@pytest.mark.parametrize("named", ["their_ledger:none_such", "no_such_module:codecs", ":codecs"])
def test_what_names_nothing_is_refused_with_what_would_be_right(monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    monkeypatch.setenv("PLEDGER_CODECS", named)
    with pytest.raises(errors.UsageError, match="MODULE:ATTRIBUTE") as refused:
        configured_codecs()
    assert named in str(refused.value)
