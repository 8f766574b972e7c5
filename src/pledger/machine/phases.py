"""Phases: what a run says of the stage that its work is in, and of the waits in it: what it is called, who must act,
and by when it should be over.

They are recorded for those who look (`pledger show`, `describe()`), cost a run nothing while it waits, and decide over
nothing: a replay carries a run on whose code names more phases, or fewer, than the one that made its history.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

from pledger.errors import UsageError
from pledger.history import events
from pledger.history.names import check_id
from pledger.machine.context import required
from pledger.machine.scopes import Deadline, checked, when_ms

if TYPE_CHECKING:
    from pledger.machine.context import PhaseMark, RunContext

#: What an overdue phase does: it is shown as overdue, or the block is ended too.
Overdue: TypeAlias = Literal["tell", "raise"]


class Phase:
    """`async with workflow.phase(...)`: see `phase`. deadline: when it is overdue, or None; with zone (UTC)."""

    def __init__(
        self, name: str, *, owner: str | None, deadline: timedelta | datetime | None, overdue: Overdue
    ) -> None:
        self._begun = described(name, "phase", owner, deadline, overdue)
        self._block = Deadline(self._begun.at, what=self._begun.what) if overdue == "raise" else None
        self._context: RunContext | None = None
        self._mark: PhaseMark | None = None

    async def __aenter__(self) -> Self:
        if self._context is not None:
            raise UsageError("a phase is entered once: make a new one for each block")
        self._context = required("workflow.phase")
        self._mark = self._begun.begin(self._context)
        if self._block is not None:
            await self._block.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        assert self._context is not None
        assert self._mark is not None
        try:
            return None if self._block is None else await self._block.__aexit__(kind, error, traceback)
        finally:
            self._context.end_phase(self._mark)


class Described:
    """A phase or a wait before it begins, its options checked. at: the deadline as given."""

    __slots__ = ("at", "kind", "name", "owner", "raises", "what")

    def __init__(
        self, name: str, kind: str, owner: str | None, at: timedelta | datetime | None, *, raises: bool
    ) -> None:
        self.name = _named(name, f"the name of a {kind}")
        self.what = f"{kind} {name!r}"
        self.owner = None if owner is None else _named(owner, f"the owner of {self.what}")
        self.at = checked(at, self.what)
        self.kind = kind
        self.raises = raises

    def begin(self, context: RunContext) -> PhaseMark:
        deadline_ms = when_ms(self.at, context.now_ms)
        return context.begin_phase(
            events.BeginPhase(self.name, self.kind, self.owner, deadline_ms, self.raises or None)
        )


def _named(given: object, what: str) -> str:
    found = check_id(given, what)
    if not found:
        raise UsageError(f"{what} is empty; those who ask must be told something")
    return found


def described(
    name: str, kind: str, owner: str | None, deadline: timedelta | datetime | None, overdue: Overdue = "tell"
) -> Described:
    """Raises UsageError and InvalidPolicyError for what is no name, owner, deadline or choice."""
    if overdue not in ("tell", "raise"):
        raise UsageError(f'overdue is {overdue!r}; use "tell" or "raise"')
    if overdue == "raise" and deadline is None:
        raise UsageError(f'{kind} {name!r} has overdue="raise" and no deadline, so it is never overdue')
    return Described(name, kind, owner, deadline, raises=overdue == "raise")


def phase(
    name: str,
    *,
    owner: str | None = None,
    deadline: timedelta | datetime | None = None,
    overdue: Overdue = "tell",
) -> Phase:
    """A stage of the work, for those who ask where it stands.

        async with workflow.phase("picking", owner="warehouse", deadline=timedelta(hours=4)):
            await pick(order)

    name: of the stage. owner: who must act in it. deadline: from now on, or a time with zone; after that the phase is
    overdue, which `pledger show`, `describe()` and the audit say. overdue="raise" ends the block then too, as
    `workflow.deadline` does. Phases may lie in one another.
    """
    return Phase(name, owner=owner, deadline=deadline, overdue=overdue)


def set_phase(name: str | None, *, owner: str | None = None, deadline: timedelta | datetime | None = None) -> None:
    """The same without a block: the run is in this stage until the next call, or its end. None: in none any more."""
    following = None if name is None else described(name, "phase", owner, deadline)
    context = required("workflow.set_phase")
    context.check_may_ask()
    if context.stage is not None:
        context.end_phase(context.stage)
    context.stage = None if following is None else following.begin(context)
