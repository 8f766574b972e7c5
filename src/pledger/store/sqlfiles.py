"""Reads the SQL that lies beside the code of a store: named queries and numbered migrations."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, Final

_BLOCK: Final = re.compile(r"^-- name: (\w+)\n(?:--[^\n]*\n)*(.*?)(?=^-- name: |\Z)", re.MULTILINE | re.DOTALL)
_MIGRATION: Final = re.compile(r"(\d{4})_\w+\.sql")


def load_queries(package: str, subject: str) -> dict[str, str]:
    """The queries of `queries/<subject>.sql` of a package by name. Each begins with `-- name: x` and may be described
    below it."""
    text = (resources.files(package) / "queries" / f"{subject}.sql").read_text("utf-8")
    return {name: sql.strip().rstrip(";") for name, sql in _BLOCK.findall(text)}


def load_migrations(package: str) -> list[str]:
    """The scripts that bring an empty database to the newest schema, in order; the first makes version 1."""
    files = {entry.name: entry for entry in (resources.files(package) / "migrations").iterdir()}
    names = sorted(name for name in files if _MIGRATION.fullmatch(name))
    # A gap or a double number would give one version number to two schemas.
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1)), names
    return [files[name].read_text("utf-8") for name in names]


def as_json(values: Sequence[Any] | Mapping[str, Any]) -> str:
    """A list or a mapping as one binding, for `json_each`."""
    return json.dumps(dict(values) if isinstance(values, Mapping) else list(values))
