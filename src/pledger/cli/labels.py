"""Search attributes and memos on the command line: `--search-attribute region=eu`, `--memo note='"by hand"'`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from pledger import errors
from pledger.cli.arguments import read_arguments
from pledger.history.attributes import (
    KINDS,
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
)

if TYPE_CHECKING:
    from pledger.client import Client

_ATTRIBUTE_HELP: Final = (
    'By which lists find it, like amount=250, region=eu, tags=\'["a", "b"]\', promised:datetime=2026-12-01T09:00Z. '
    f"Its kind is that which other runs have it with, or stands after a colon: {', '.join(KINDS)}."
)

SearchAttributes: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--search-attribute",
        metavar="NAME=VALUE",
        help=_ATTRIBUTE_HELP,
        show_default=False,
    ),
]
Memo: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--memo", metavar="NAME=JSON", help="A value for people, like note='\"by hand\"'.", show_default=False
    ),
]

_KEYS: Final[Mapping[str, Callable[[str], SearchAttributeKey[Any]]]] = {
    "keyword": SearchAttributeKey.for_keyword,
    "text": SearchAttributeKey.for_text,
    "int": SearchAttributeKey.for_int,
    "float": SearchAttributeKey.for_float,
    "bool": SearchAttributeKey.for_bool,
    "datetime": SearchAttributeKey.for_datetime,
    "keyword_list": SearchAttributeKey.for_keyword_list,
}


async def read_search_attributes(texts: Sequence[str], client: Client) -> TypedSearchAttributes:
    """Raises UsageError naming the option and what would be right."""
    if not texts:
        return TypedSearchAttributes()
    known = {key.name: key.kind for key in await client.search_attribute_keys()}
    return TypedSearchAttributes([_pair(text, known) for text in texts])


def read_memo(texts: Sequence[str]) -> dict[str, Any] | None:
    """Raises UsageError."""
    if not texts:
        return None
    parts = [_cut(text, "--memo", "note='\"by hand\"'") for text in texts]
    return dict(zip((name for name, _ in parts), read_arguments([value for _, value in parts]), strict=True))


def _cut(text: str, option: str, example: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise errors.UsageError(f"{option} {text!r} names no value; write it like {option} {example}")
    return name.strip(), value


def _pair(text: str, known: Mapping[str, str]) -> SearchAttributePair[Any]:
    name, value = _cut(text, "--search-attribute", "amount=250")
    name, colon, stated = name.partition(":")
    kind = stated if colon else known.get(name) or _kind_of(value)
    if kind not in _KEYS:
        raise errors.UsageError(f"--search-attribute {text!r}: there is no kind {kind!r}; they are {', '.join(KINDS)}")
    return SearchAttributePair(_KEYS[kind](name), _value(value, kind, text))


def _json(text: str) -> Any:
    """The JSON that it is, or the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _kind_of(value: str) -> str:
    found = _json(value)
    return {bool: "bool", int: "int", float: "float", list: "keyword_list"}.get(type(found), "keyword")


def _value(value: str, kind: str, text: str) -> Any:
    found = _json(value)
    if kind in {"keyword", "text"}:
        return found if isinstance(found, str) else value
    if kind == "datetime":
        time = None
        with contextlib.suppress(ValueError):
            time = datetime.fromisoformat(str(found))
        if time is None or time.tzinfo is None:
            raise errors.UsageError(f"--search-attribute {text!r}: write a time like 2026-12-01T09:00+01:00")
        return time
    if kind == "keyword_list" and isinstance(found, str):
        return [found]
    return found
