"""Tokens: what is signed, and that nothing else passes for it."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pledger.engine import tokens
from pledger.engine.port.tokens import TokenKey
from pledger.engine.tokens import Claims, accepted, is_signed, key_of, read, sign
from pledger.errors import TokenForgedError

KEY = TokenKey("k1", b"a secret of thirty-two bytes ...", 0)
CLAIMS = Claims("k1", "default", "order-1", "06H2WV54XV7Y0X4SC7RSS1CJ7R", 2, 1, 1_700_000_000_000)


def passes(token: str | bytes, key: TokenKey = KEY) -> bool:
    try:
        _, body, signature = read(token)
    except TokenForgedError:
        return False
    return is_signed(body, signature, key)


def test_a_token_says_what_it_is_for_and_proves_it() -> None:
    token = sign(CLAIMS, KEY.secret)
    assert read(token)[0] == CLAIMS
    assert passes(token)
    assert passes(token.encode())
    assert passes(f" {token}\n")
    assert not passes(token, TokenKey("k1", b"another secret of thirty-two by.", 0))
    assert KEY.secret.hex() not in token


@given(st.data())
def test_a_token_that_was_changed_anywhere_passes_nowhere(data: st.DataObject) -> None:
    token = sign(CLAIMS, KEY.secret)
    at = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.characters(codec="ascii", exclude_characters=token[at]))
    assert not passes(token[:at] + other + token[at + 1 :])
    assert not passes(token[:at] + token[at + 1 :])


@given(st.text() | st.binary() | st.sampled_from(["pldg1", "pldg1..", "pldg1.a.b", "pldg1.a.b.c", ".."]))
def test_nothing_made_up_is_read_otherwise_than_as_a_forgery(text: str | bytes) -> None:
    assert not passes(text)


@pytest.mark.parametrize("changes", [{"attempt": 2}, {"event_id": 3}, {"namespace": "eu"}, {"expires_ms": 2**50}])
def test_claims_of_another_under_the_same_signature_are_forged(changes: dict[str, object]) -> None:
    import msgspec  # noqa: PLC0415 - for the forger alone

    kind, _, signature = sign(CLAIMS, KEY.secret).split(".")
    body = base64.urlsafe_b64encode(msgspec.msgpack.encode(msgspec.structs.replace(CLAIMS, **changes)))
    forged = f"{kind}.{body.decode().rstrip('=')}.{signature}"
    assert read(forged)[0] != CLAIMS
    assert not passes(forged)


def test_a_field_more_of_a_later_version_is_read_over() -> None:
    import msgspec  # noqa: PLC0415 - for the later version

    body = base64.urlsafe_b64encode(msgspec.msgpack.encode([*msgspec.structs.astuple(CLAIMS), "new"])).decode()
    signed = f"pldg1.{body.rstrip('=')}"
    found, text, _ = read(f"{signed}.AAAA")
    assert (found, f"pldg1.{text}") == (CLAIMS, signed)


def test_keys_are_accepted_until_they_are_retired() -> None:
    old = TokenKey("old", b"o" * 32, 0, 100)
    assert accepted([KEY, old], "old", 99) is old
    assert accepted([KEY, old], "old", 100) is None
    assert accepted([KEY, old], "k1", 10**15) is KEY
    assert accepted([KEY, old], "other", 0) is None


def test_a_program_names_its_keys_alike_everywhere() -> None:
    assert key_of(b"x" * 32).key_id == key_of(b"x" * 32).key_id != key_of(b"y" * 32).key_id


def test_what_a_key_shows_of_itself_is_no_secret() -> None:
    assert repr(KEY) == str(KEY) == "TokenKey('k1', created_ms=0, retired_ms=None)"
    assert "secret" not in repr([KEY])


def test_signatures_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever finds the first byte that differs must not end the sooner for it."""
    compared: list[tuple[bytes, bytes]] = []
    monkeypatch.setattr(tokens.hmac, "compare_digest", lambda a, b: compared.append((a, b)) or a == b)
    assert passes(sign(CLAIMS, KEY.secret))
    assert len(compared) == 1
