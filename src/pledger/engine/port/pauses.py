"""Pauses: what stands still because somebody said so, who, why and since when; and how it is let go on.

A pause is a row. A claim never takes what a pause covers; the owner of a run that is covered lets go of it when it next
looks. While a pause is being lifted at a rate, its row stays, with a bucket of tokens: a token lets one run, or one
attempt that waits in the store, go on. The arithmetic of the bucket stands here, once for all stores.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, TypeAlias

from msgspec.structs import replace

from pledger.engine.port.records import Record, RunRow

if TYPE_CHECKING:
    from pledger.engine.port.lanes import Bounds, Claim, Served

PauseKind: TypeAlias = Literal["run", "type", "queue", "namespace"]

PAUSE_KINDS: Final[tuple[PauseKind, ...]] = ("run", "type", "queue", "namespace")


class Scope(Record, frozen=True):
    """What a pause covers. name: a run id, a workflow type, a task queue, or the namespace once more. run_key and
    workflow_id: of a run."""

    namespace: str
    kind: PauseKind
    name: str
    run_key: int | None = None
    workflow_id: str = ""


class Pause(Record, frozen=True):
    """One pause. scope: see there. paused_ms: by the store's clock.

    rate: how many a second go on while it is being lifted; None: nothing does. backlog: how many waited when that
    began; released: how many have gone on since. tokens: how many may go on now, as of filled_ms.
    """

    pause_key: int
    scope: Scope
    reason: str
    paused_by: str
    paused_ms: int
    rate: float | None = None
    backlog: int = 0
    released: int = 0
    tokens: float = 0.0
    filled_ms: int = 0

    def covers(self, run_key: int, workflow_type: str, task_queue: str) -> bool:
        """Whether the run, of the same namespace, is of what is paused."""
        match self.scope.kind:
            case "run":
                return self.scope.run_key == run_key
            case "type":
                return self.scope.name == workflow_type
            case "queue":
                return self.scope.name == task_queue
            case "namespace":
                return True


# Lifting at a rate ----------------------------------------------------------------------------------------------------


class Paused(Protocol):
    """A run, or an attempt of one, of which a pause may say that it waits."""

    @property
    def run_key(self) -> int: ...
    @property
    def workflow_type(self) -> str: ...
    @property
    def task_queue(self) -> str: ...


class Part(NamedTuple):
    """One part of a claim while pauses are being lifted. names: the types that it is about. lifted: the pauses, by key,
    that do not stand in its way, and that pay for what it takes of theirs. room: how much that may be."""

    names: list[str]
    lifted: list[int]
    room: int


class Lifting:
    """A claim for one queue while pauses are being lifted, in one transaction that has their rows locked.

    paid: what is to be written of them: by key, None for one that has come to its end.
    """

    def __init__(self, pauses: Iterable[Pause], task_queue: str, now_ms: int) -> None:
        place = [each for each in pauses if _is_above(each, task_queue)]
        self.paid: dict[int, Pause | None] = {}
        self._pauses: dict[int, Pause] = {}
        self._place: list[int] = []
        self._types: dict[str, int] = {}
        self._left = 0
        if any(each.rate is None for each in place):
            return  # what is paused altogether is not let go on by a part of it that is not any more
        for each in pauses:
            if each.rate is not None and (each in place or each.scope.kind == "type"):
                self._pauses[each.pause_key] = filled(each, now_ms)
                if (
                    each.filled_ms > now_ms
                ):  # the clock has gone back: else its tokens would come from now on at each look
                    self.paid[each.pause_key] = self._pauses[each.pause_key]
                if each in place:
                    self._place.append(each.pause_key)
                else:
                    self._types[each.scope.name] = each.pause_key

    def of_runs(self, types: Iterable[str], room: int) -> Iterator[Part]:
        """How a claim of at most `room` runs is cut up. Each part is to be claimed, and paid for, before the next."""
        names, self._left = list(types), room
        if self._place:
            yield from self._part([name for name in names if name not in self._types], self._place)
        for name, key in self._types.items():
            if name in names:
                yield from self._part([name], [*self._place, key])

    def of_tasks(self, types: Sequence[str], room: int) -> Iterator[Part]:
        """The same for attempts that wait: those of an activity type may belong to runs of any workflow type."""
        self._left = room
        if self._place:
            yield from self._part(list(types), self._place)
        for key in self._types.values():
            yield from self._part(list(types), [*self._place, key])

    def pay(self, part: Part, taken: Sequence[Paused]) -> None:
        """For what a claim of that part has taken, in line with the rest: of what a type's pause does not cover, other
        types may have some attempts too."""
        self._left -= len(taken)
        for key in part.lifted:
            before = self._pauses[key]
            count = sum(before.covers(each.run_key, each.workflow_type, each.task_queue) for each in taken)
            if count:
                released = before.released + count
                after = replace(before, tokens=before.tokens - count, released=released)
                self._pauses[key] = after
                self.paid[key] = None if released >= before.backlog else after

    def _part(self, names: list[str], keys: list[int]) -> Iterator[Part]:
        room = min(self._left, *(int(self._pauses[key].tokens) for key in keys))
        if names and room > 0:
            yield Part(names, keys, room)


def filled(pause: Pause, now_ms: int) -> Pause:
    """With the tokens of now. A bucket holds those of one second, or one: who comes late finds no flood. Where the
    clock has gone back they come from now on."""
    assert pause.rate is not None
    passed_s = max(0, now_ms - pause.filled_ms) / 1000
    tokens = min(max(1.0, pause.rate), pause.tokens + passed_s * pause.rate)
    return replace(pause, tokens=tokens, filled_ms=now_ms)


def lifted_at(pause: Pause, rate: float | None, backlog: int, now_ms: int) -> Pause | None:
    """The row from now on; None for none: the pause is over."""
    if rate is None or backlog <= 0:
        return None
    return replace(pause, rate=rate, backlog=backlog, released=0, tokens=1.0, filled_ms=now_ms)


def paused_again(pause: Pause, reason: str, paused_by: str, now_ms: int) -> Pause:
    """What becomes of a row that is there when its scope is paused."""
    if pause.rate is None:
        return pause
    return Pause(pause.pause_key, pause.scope, reason, paused_by, now_ms)


def _is_above(pause: Pause, task_queue: str) -> bool:
    kind = pause.scope.kind
    return kind == "namespace" or (kind == "queue" and pause.scope.name == task_queue)


# The verbs ------------------------------------------------------------------------------------------------------------


class Pauses(Protocol):
    """Pausing and resuming. `claim_runs` and `claim_tasks` keep to it, and `look` tells owners."""

    async def claim_lifted_tasks(
        self, session_key: int, now_ms: int, served: Served, room: int, bounds: Bounds
    ) -> Claim:
        """As `claim_queued`, of what pauses that are being lifted let go on now."""
        ...

    async def claim_lifted_runs(
        self, session_key: int, now_ms: int, namespace: str, task_queue: str, codes: Mapping[str, str], limit: int
    ) -> list[RunRow]:
        """As `claim_runs`, of the same."""
        ...

    async def pause(self, scope: Scope, reason: str, paused_by: str) -> Pause:
        """Durable before it returns. One that is paused already stays so, with its first reason; one that is just being
        lifted stands still again, with this one."""
        ...

    async def resume(self, scope: Scope, rate: float | None) -> Pause | None:
        """Lift the pause: at once, or while something waits at `rate` a second. What it was before; None when there
        was none."""
        ...

    async def read_pauses(self, namespace: str) -> list[Pause]:
        """All of the namespace, oldest first; those of runs that have closed are not among them."""
        ...
