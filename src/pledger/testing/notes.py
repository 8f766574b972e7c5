"""What happened to the ledger, in lines for the report of a failing seed."""

from __future__ import annotations

from typing import Any, Final

from pledger.engine.port.answers import Answer, Reply
from pledger.engine.port.operations import Write
from pledger.engine.port.records import Record


def in_short(verb: str, args: tuple[Any, ...], result: Any) -> str:
    """A write in a line of the report."""
    if verb == "commit":
        return "; ".join(f"{_fields(each)} -> {_answer(answer)}" for each, answer in zip(args[0], result, strict=True))
    found = ", ".join(map(_fields, result)) if isinstance(result, list) else str(result)
    return f"{verb} -> {found}"


def _fields(row: Any) -> str:
    """What is short in an operation or a row."""
    if not isinstance(row, (Record, Write)):
        return str(row)
    shown = []
    for name in row.__struct_fields__:
        value = getattr(row, name)
        if value is None or type(value) is bytes:
            continue  # most of them
        if isinstance(value, (int, str)):
            if value not in _DULL:
                shown.append(f"{name}={value!r}")
        elif isinstance(value, (Record, Write)):
            shown.append(f"{name}={_fields(value)}")
    return f"{type(row).__name__}({', '.join(shown)})"


#: Values that say nothing in a report.
_DULL: Final = frozenset({0, "", "default"})


def _answer(answer: Answer) -> str:
    return answer.name if isinstance(answer, Reply) else type(answer).__name__
