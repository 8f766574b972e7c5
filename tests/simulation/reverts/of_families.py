"""Reverts of what holds between parents and children."""

from __future__ import annotations

from typing import Any

import pytest

from pledger.engine.partings import Partings
from pledger.engine.port.posts import Child, Parting, notice_id
from pledger.engine.port.records import RunRow
from pledger.store.memory import families
from pledger.store.memory.state import State
from tests.simulation.reverts.revert import DEATHS, Revert, several


def the_end_of_a_child_is_told_only_to_a_parent_that_somebody_holds(patch: pytest.MonkeyPatch) -> None:
    rule = families.part

    def part(state: State, run: RunRow, report: bytes | None, now_ms: int, *, has_dependants: bool) -> None:
        link = state.links.get(run.chain_key)
        if link is not None and state.runs[link.parent_key].owner is None:
            report = None
        rule(state, run, report, now_ms, has_dependants=has_dependants)

    patch.setattr(families, "part", part)


def a_parent_without_an_owner_is_not_woken(patch: pytest.MonkeyPatch) -> None:
    def part(state: State, run: RunRow, report: bytes | None, now_ms: int, *, has_dependants: bool) -> None:
        link = state.links.get(run.chain_key) if report is not None else None
        if link is not None and report is not None and (parent := state.runs[link.parent_key]).status == "running":
            message_id = notice_id(parent.run_id, link.event_id, "end")
            families._notify(state, parent, message_id, "ended", report, now_ms)
            if parent.owner is not None:
                state.wake(parent.run_key)
        if has_dependants:
            state.partings[run.run_key] = None

    patch.setattr(families, "part", part)


def a_parting_is_settled_before_it_is_seen_to(patch: pytest.MonkeyPatch) -> None:
    rule = Partings._see_to

    async def see_to(self: Partings, parting: Parting, child: Child) -> None:
        await self._connection.store.settle_parting(parting.run_key, [each.row.chain_key for each in parting.children])
        await rule(self, parting, child)

    patch.setattr(Partings, "_see_to", see_to)


#: Ends of parents and children that meet the deaths of their workers.
_FAMILIES: dict[str, Any] = {"cases": several("family", 2), "options": {"workers": 2}}
_TOLD, _ALONE = "every end of a child reaches its parent", "no child outlives its parent unasked"
_ENDLESS = "everything finishes"

REVERTS = [
    Revert(the_end_of_a_child_is_told_only_to_a_parent_that_somebody_holds, (_TOLD, _ENDLESS), DEATHS, **_FAMILIES),
    Revert(a_parent_without_an_owner_is_not_woken, ("every open run has a waker", _ENDLESS), DEATHS, **_FAMILIES),
    Revert(a_parting_is_settled_before_it_is_seen_to, (_ALONE, _ENDLESS), DEATHS, **_FAMILIES),
]
