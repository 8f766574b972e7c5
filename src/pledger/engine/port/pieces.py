"""Pieces of large values: kept once by what is in them, whoever refers to them.

A piece is written in the transaction of the operation that refers to it, and is used by the run that this is of. It
stays while any run uses it; what retention forgets uses nothing any more. Its name is made from what is in it, so that
of two that have one it does not matter which is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from pledger.engine.port.answers import Existing, Reply, Started

if TYPE_CHECKING:
    from pledger.engine.port.answers import Answer
    from pledger.engine.port.operations import Operation

#: Answers to operations of which nothing was written.
_UNWRITTEN: Final = frozenset({Reply.LOST, Reply.DUPLICATE, Reply.CLOSED, Reply.FULL})


def user_of(operation: Operation, answer: Answer) -> int | None:
    """The run_key of the run that uses the pieces of an operation; None where the answer says that nothing of it was
    written."""
    if isinstance(answer, Started):
        return answer.run_key
    if isinstance(answer, (Exception, Existing)) or (isinstance(answer, Reply) and answer in _UNWRITTEN):
        return None
    task = getattr(operation, "task", None)
    run_key: int | None = getattr(operation, "run_key", None) if task is None else task.run_key
    return run_key


class Pieces(Protocol):
    async def read_pieces(self, names: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """The bodies of those that are there, by their names."""
        ...
