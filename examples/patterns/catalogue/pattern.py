"""What a pattern of the catalogue is here: a number, a name, and a workflow that comes to a known end."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol


class Run(Protocol):
    """What those outside do with a run: the part of `WorkflowHandle` that they need."""

    async def signal(self, signal: Any, *args: Any, message_id: str) -> object: ...

    async def query(self, query: Any, /) -> Any: ...

    async def cancel(self, reason: str) -> object: ...


@dataclass(frozen=True)
class Pattern:
    """number, name: of the catalogue. result: None for a run that ends otherwise than completed.

    outside: what others do meanwhile. is_race: which of its steps is first depends on how long they take.
    """

    number: int
    name: str
    workflow: Any
    args: tuple[Any, ...] = ()
    result: Any = None
    outside: Callable[[Run], Awaitable[None]] | None = None
    is_race: bool = False

    @property
    def workflow_id(self) -> str:
        return f"WCP-{self.number}"


async def send(run: Run, signal: Any, *args: Any) -> None:
    """One message, once, however often it is told of."""
    await run.signal(signal, *args, message_id=" ".join([signal.__name__, *map(str, args)]))
