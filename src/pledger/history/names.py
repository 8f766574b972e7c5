"""Names and keys that users give: what they may be, so that they can stand in an index and in every message."""

from __future__ import annotations

from typing import Final

from pledger.errors import InvalidPolicyError

NAME_CHARACTERS_MAX: Final = 200


def check_text(given: str, what: str) -> None:
    """Raises InvalidPolicyError for a name or a key that cannot stand in an index."""
    if len(given) > NAME_CHARACTERS_MAX:
        raise InvalidPolicyError(
            f"the {what} has {len(given)} characters, the most is {NAME_CHARACTERS_MAX}; use a digest"
        )
    if "\0" in given or not given.isprintable():
        raise InvalidPolicyError(f"the {what}, {given!r}, holds characters that cannot be printed; use a digest")
