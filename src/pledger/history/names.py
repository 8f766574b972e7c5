"""Names, keys and texts that users give: what they may be, so that they can be kept, stand in an index and in messages.

They are checked where they are given. What a history cannot hold is found there, at the line of whoever gave it; after
the commit it would be found by whoever reads the history, and nobody could mend it.
"""

from __future__ import annotations

import re
from typing import Final

from pledger.errors import InvalidPolicyError, UsageError

NAME_CHARACTERS_MAX: Final = 200
#: Longer than any name that a person gives; ids stand in indices and in every message.
ID_CHARACTERS_MAX: Final = 1_000
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def check_str(given: object, what: str) -> str:
    """The text, as a plain str. Raises UsageError for what is none, or cannot be encoded. what: like "the id of x"."""
    if not isinstance(given, str):
        raise UsageError(f"{what} is {given!r}, of type {type(given).__name__}; it must be a str")
    if _SURROGATE.search(given) is not None:
        raise UsageError(f"{what}, {given!r}, holds half of a surrogate pair, which no database keeps")
    # Of a subclass nothing but the text is kept, and not what its own __str__ makes of it.
    return given if type(given) is str else str.__str__(given)


def check_id(given: object, what: str) -> str:
    """The same for an id or a name; also raises for one that is too long, or holds what not every database keeps."""
    text = check_str(given, what)
    if len(text) > ID_CHARACTERS_MAX:
        raise UsageError(f"{what} has {len(text)} characters, the most is {ID_CHARACTERS_MAX}; use a digest")
    if "\0" in text:
        raise UsageError(f"{what}, {text!r}, holds a NUL character, which PostgreSQL does not keep in a name")
    return text


def check_text(given: object, what: str) -> str:
    """A name or a key, as a plain str. Raises InvalidPolicyError for one that cannot stand in an index."""
    if not isinstance(given, str):
        raise InvalidPolicyError(f"the {what} is {given!r}, of type {type(given).__name__}; it must be a str")
    if len(given) > NAME_CHARACTERS_MAX:
        raise InvalidPolicyError(
            f"the {what} has {len(given)} characters, the most is {NAME_CHARACTERS_MAX}; use a digest"
        )
    if "\0" in given or not given.isprintable():
        raise InvalidPolicyError(f"the {what}, {given!r}, holds characters that cannot be printed; use a digest")
    return str.__str__(given)


def clean(given: object, what: str) -> str:
    """A text for people, whatever stands in it: halves of surrogate pairs and NUL are written out.

    Raises UsageError for what is no text.
    """
    if not isinstance(given, str):
        raise UsageError(f"{what} is {given!r}, of type {type(given).__name__}; it must be a str")
    return given.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
