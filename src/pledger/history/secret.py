"""Secrets: references in payloads, values nowhere.

A `Secret` is a name. What it stands for is known inside an attempt of an activity that declares it, and to nothing that
the ledger keeps: `redact` puts the reference in place of every value that this process has learnt.
"""

from __future__ import annotations

import base64
import json
import re
import string
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Final

from pledger.errors import SecretError

SCHEME: Final = "secret://"
#: As file names and parts of environment variables everywhere.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_UNRESERVED: Final = frozenset(string.ascii_letters + string.digits + "-._~")
#: A shorter value cannot be told from ordinary text.
LENGTH_MIN: Final = 6

#: Of the attempt whose code runs in this context: the values of the secrets that its activity declares, by name.
held: Final[ContextVar[Mapping[str, str]]] = ContextVar("pledger_secrets")


class Known:
    """forms: what is looked for and what takes its place, of every value that this process has learnt; the longest
    first."""

    __slots__ = ("forms",)

    def __init__(self) -> None:
        self.forms: tuple[tuple[str, str], ...] = ()


#: Looked at for every step: empty where no secret was ever read.
known: Final = Known()


class Secret:
    """A reference to a secret, like `secret://stripe-key`: an argument that may stand in any history.

    name: letters, digits, dots, dashes and underscores; `secret://` before it may be given too. Equal by name.
    Raises SecretError for a name that can be none.
    """

    __slots__ = ("name",)

    name: str

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "name", check_name(name.removeprefix(SCHEME)))

    @property
    def value(self) -> str:
        """What it stands for. Raises SecretError outside of an attempt of an activity that declares it."""
        return value_of(self.name)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Secret cannot be changed, so {name} stays as it is")

    def __eq__(self, other: object) -> bool:
        return self.name == other.name if isinstance(other, Secret) else NotImplemented

    def __hash__(self) -> int:
        return hash((Secret, self.name))

    def __str__(self) -> str:
        return SCHEME + self.name

    def __repr__(self) -> str:
        return f"Secret({self.name!r})"

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        return Secret, (self.name,)


def check_name(name: str) -> str:
    """The name. Raises SecretError for one that can be none."""
    if _NAME.fullmatch(name) is None:
        # Not told whole: what stands where a name should stand may be the secret itself.
        raise SecretError(
            f"{name[:4] + '…'!r} is no name of a secret; use letters, digits, dots, dashes and underscores, at most "
            "200. A name says where the value is, it is not the value"
        )
    return name


def value_of(name: str) -> str:
    """Inside an attempt. Raises SecretError."""
    try:
        return held.get()[name]
    except LookupError:
        raise SecretError(
            f"the secret {name!r} can be read only inside an attempt of an activity that declares it: "
            f"@activity.defn(secrets=[{name!r}])",
            name=name,
            non_retryable=True,
        ) from None


# Redaction ------------------------------------------------------------------------------------------------------------


def remember(name: str, value: str) -> None:
    """From now on the value is redacted, in the forms that texts commonly give it. By one thread at a time."""
    if any(form == value for form, _ in known.forms):
        return
    as_json = json.dumps(value)[1:-1]
    forms = {
        value,
        as_json,
        json.dumps(value, ensure_ascii=False)[1:-1],
        json.dumps(as_json)[1:-1],
        repr(value)[1:-1],
        _percent_encoded(value),
        _percent_encoded(value).replace("%20", "+"),
        base64.b64encode(value.encode("utf-8", "surrogateescape")).decode(),
    }
    forms |= {line.strip() for line in value.splitlines() if len(line.strip()) >= 2 * LENGTH_MIN}
    every = dict(known.forms) | dict.fromkeys(forms, SCHEME + name)
    known.forms = tuple(sorted(every.items(), key=lambda form: -len(form[0])))


def _percent_encoded(value: str) -> str:
    """As in a URL (RFC 3986). Not by urllib, which is of the network."""
    return "".join(
        chr(byte) if chr(byte) in _UNRESERVED else f"%{byte:02X}" for byte in value.encode("utf-8", "surrogateescape")
    )


def redact(text: str) -> str:
    """The text with references in place of values."""
    for form, reference in known.forms:
        if form in text:
            text = text.replace(form, reference)
    return text


def redact_payload(data: bytes) -> bytes:
    """The same of JSON. A reference needs no escapes, so that it stays JSON."""
    return redact(data.decode()).encode() if known.forms else data


def found_in(data: bytes) -> str | None:
    """The reference of a secret whose value is in the JSON, or None."""
    text = data.decode()
    return next((reference for form, reference in known.forms if form in text), None)
