"""What no kill takes back: a file of lines, each written whole by one call, beside the ledger of a case.

Clients keep there what was acknowledged to them, the outside world what it did; and each life of a process leaves its
last moment there, so that the next one begins later than that.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

Line: TypeAlias = list[Any]

NAME: Final = "diary"


class Diary:
    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / NAME, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, kind: str, *values: Any) -> None:
        os.write(self._file, json.dumps([kind, *values]).encode() + b"\n")


def read(folder: Path) -> list[Line]:
    """Each line: its kind, then its values; oldest first."""
    path = folder / NAME
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def of_kind(lines: list[Line], kind: str) -> Iterator[Line]:
    """The values of the lines of one kind."""
    return (values for found, *values in lines if found == kind)
