"""Reverts of what makes an update known once, answered once, and as durable as it was said to be."""

from __future__ import annotations

from typing import Any

import pytest

from pledger.engine import mail
from pledger.engine.active_run import ActiveRun
from pledger.engine.updating import Told, Updates
from pledger.history.events import UpdateAccepted
from pledger.testing import Faults
from tests.simulation.reverts.revert import Revert, several


def an_update_is_accepted_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    rule = Updates._lets_through

    def lets_through(self: Updates, run: ActiveRun, update: UpdateAccepted) -> bool:
        through = rule(self, run, update)
        if through:
            self._tell(run, update.update_id, Told(run.last_event + 1))
        return through

    patch.setattr(Updates, "_lets_through", lets_through)


def what_was_refused_is_judged_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(mail, "ANSWERED_MAX", 0)


_DEATHS = Faults(kill_at_commit=0.3, slow_store=0.3)
_LATE = Faults(slow_store=0.3, notification_lost=0.5, pause=0.3)
_TILLS: dict[str, Any] = {"cases": several("till", 4), "options": {"workers": 2}}

#: Where a client was told that its update is accepted, it waits for what comes of it.
_ENDLESS = "everything finishes"

REVERTS = [
    Revert(an_update_is_accepted_before_it_is_durable, ("nothing acknowledged is lost", _ENDLESS), _DEATHS, **_TILLS),
    Revert(what_was_refused_is_judged_again, ("refused is refused", _ENDLESS), _LATE, **_TILLS),
]
