"""The reference workflows as processes that are killed run them: every case, with the truth of its ending."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

from pledger.machine.definitions import ActivityDefinition
from pledger.testing.journal import Program
from tests.crashes.apart import apart, set_apart
from tests.reference import activities, changing, depending, further, handed_out, publishing, rolling, shop, workflows
from tests.reference.cases import CASES, DEPENDING, FURTHER, HANDED_OUT, PUBLISHING, ROLLING, SHOP, Case
from tests.reference.truths import TRUTHS, Truth

ACTIVITIES: Final = [*activities.ACTIVITIES, *further.ACTIVITIES, apart]
WORKFLOWS: Final = [*workflows.WORKFLOWS, *further.WORKFLOWS, *rolling.WORKFLOWS, set_apart]
#: A process has a worker for each.
QUEUES: Final = ("default", "elsewhere")


@dataclass(frozen=True)
class Crash:
    """deploy: whether the code changes while the run is open."""

    case: Case
    truth: Truth
    deploy: bool = False

    @property
    def name(self) -> str:
        return self.case.name

    def programs(self) -> list[Program]:
        """What clients do, in each life of their process anew."""
        case = self.case
        return [
            Program(
                case.workflow,
                case.args,
                case.name,
                case.then,
                0.0,
                0,
                options=dict(case.options),
                beside=case.beside,
            )
            for _ in range(case.times)
        ]

    @property
    def is_of_shop(self) -> bool:
        """Whether its workers know the transaction and the secret of the shop."""
        return self.case in SHOP

    @property
    def _parts(self) -> Iterator[ModuleType]:
        """Those whose activities only their own cases have."""
        if self.case in DEPENDING:
            yield depending
        if self.case in HANDED_OUT:
            yield handed_out
        if self.case in PUBLISHING:
            yield publishing
        if self.is_of_shop:
            yield shop

    def workflows(self, *, new: bool = True) -> Sequence[Callable[..., Any] | type]:
        more = [each for part in self._parts for each in part.WORKFLOWS]
        return [*WORKFLOWS, *more, *(changing.AFTER if new else changing.BEFORE)]

    @property
    def activities(self) -> Sequence[ActivityDefinition[Any, Any]]:
        return [*ACTIVITIES, *(each for part in self._parts for each in part.ACTIVITIES)]


def _all() -> list[Crash]:
    changed = [
        Case("mended", changing.mended, ("one",)),
        Case("extended", changing.with_a_step_more, ("one",)),
    ]
    # Where a client ends it, the same is killed at the same places as in the whole one.
    whole = [each for each in FURTHER if each.name != "family-cut-short"]
    still = [
        *CASES,
        *whole,
        *ROLLING,
        *PUBLISHING,
        *DEPENDING,
        *SHOP,
        *HANDED_OUT,
        Case("set-apart", set_apart, ("apart",)),
    ]
    without = [each.name for each in [*still, *changed] if each.name not in TRUTHS]
    assert not without, f"say in tests/reference/truths.py how these must end: {', '.join(without)}"
    return [
        *(Crash(each, TRUTHS[each.name]) for each in still),
        *(Crash(each, TRUTHS[each.name], deploy=True) for each in changed),
    ]


CRASHES: Final = {each.name: each for each in _all()}
