"""The commands that there are, as people type them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from pledger.cli.app import app


def commands() -> list[str]:
    """Like `start` and `limit set`, in the order of `pledger --help`."""
    return list(_below(typer.main.get_command(app), ()))


def _below(group: Any, path: tuple[str, ...]) -> Iterator[str]:
    for name, each in group.commands.items():
        if hasattr(each, "commands"):
            yield from _below(each, (*path, name))
        else:
            yield " ".join((*path, name))
