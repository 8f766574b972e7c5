"""Reverts of the audit, in ledgers that lose what wakes a run; and of what blocks of workflow code promise."""

from __future__ import annotations

from typing import Any

import pytest

from pledger.engine.auditor import Auditor
from pledger.machine import context
from pledger.machine.scopes import Scope
from pledger.store.memory.state import State
from tests.simulation.reverts.revert import DEATHS, Revert, several

_wake = State.wake


def _lost_unless_somebody_asks(self: State, run_key: int) -> None:
    """Messages and outcomes wake nobody; questions still do, and so whoever asks has all that waits looked at."""
    if any(each.run_key == run_key and each.answer is each.failure is None for each in self.requests.values()):
        _wake(self, run_key)


def nobody_looks_for_runs_that_nothing_wakes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Auditor, "start", lambda self: None)


def the_audit_looks_and_wakes_nobody(patch: pytest.MonkeyPatch) -> None:
    async def mend(self: Auditor, found: Any) -> None: ...

    patch.setattr(Auditor, "_mend", mend)


def a_deadline_does_not_travel(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(context, "_bounded", lambda options, deadline_ms, now_ms: options)


def a_scope_forgets_what_was_begun_in_it(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Scope, "note", lambda self, begun: None)


#: Of such a ledger the simulation would say at once that a run has no waker; this is about what comes of it.
_LOSES_WAKES: dict[str, Any] = {
    "cases": ("approval", *several("collector", 2)),
    "settings": {
        "pledger.store.memory.state.State.wake": _lost_unless_somebody_asks,
        "pledger.testing.audit.Auditor.check_waker": lambda self, run_key, view: None,
    },
}

REVERTS = [
    Revert(nobody_looks_for_runs_that_nothing_wakes, ("everything finishes",), **_LOSES_WAKES),
    Revert(the_audit_looks_and_wakes_nobody, ("everything finishes",), **_LOSES_WAKES),
    Revert(a_deadline_does_not_travel, ("bounded-",), cases=("bounded",)),
    Revert(a_scope_forgets_what_was_begun_in_it, ("bounded-",), DEATHS, cases=("bounded",)),
]
