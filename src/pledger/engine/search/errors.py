"""What is wrong with a filter: where, and what would be right."""

from __future__ import annotations

from typing import NoReturn

from pledger.errors import InvalidFilterError


def refuse(text: str, why: str, at: int | None = None) -> NoReturn:
    """at: the position of the first wrong character, from 0."""
    where = ""
    if at is not None and "\n" not in text:
        where = f"\n  {text}\n  {' ' * at}^"
    raise InvalidFilterError(f"the filter {text!r} cannot be used: {why}{where}")
