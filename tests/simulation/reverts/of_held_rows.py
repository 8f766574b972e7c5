"""Reverts of what is claimed ahead of free slots: until it begins it is nobody's attempt."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pledger import errors
from pledger.engine.held import Held
from pledger.engine.port.answers import Answer
from pledger.engine.port.operations import FinishTask
from pledger.engine.port.records import TaskRow
from pledger.engine.task_rows import TaskRows
from pledger.testing import Faults
from tests.simulation.reverts.revert import Revert, several
from tests.simulation.running import claim_ahead


def what_is_held_is_forgotten_at_drain(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Held, "leave", Held.forget)


def what_goes_back_is_written_until_it_is_heard_of(patch: pytest.MonkeyPatch) -> None:
    """Meanwhile somebody may have begun it, under the same number."""

    def give_back(self: TaskRows, row: TaskRow) -> None:
        queued = replace(row, state="queued", owner=None, started_ms=None)
        assert row.owner is not None
        finish = FinishTask(row.run_key, row.event_id, row.attempt, row.owner, None, queued)

        def given_back(answer: Answer) -> None:
            if isinstance(answer, errors.StoreUnavailableError):
                self._later(lambda: self._committer.submit(finish, given_back))
            else:
                self._given_back(queued, answer)

        self._committer.submit(finish, given_back)

    patch.setattr(TaskRows, "give_back", give_back)


CROWD = several("crowd", 3)
ACROSS = several("across", 4, args=(8,))
#: So that rows wait for a while, and nothing outlasts the grace of a worker that leaves.
SLOW = {"pledger.testing.world.SLOW_MAX_S": 5.0, "pledger.engine.ahead.PATIENCE_MIN_S": 60.0}
EAGER = {"pledger.engine.ahead.Pace.ahead": claim_ahead}

REVERTS = [
    Revert(
        what_is_held_is_forgotten_at_drain,
        ("crowd-",),
        Faults(restart=1.0, effect_slow=0.3),
        CROWD,
        settings=EAGER | SLOW,
    ),
    Revert(
        what_goes_back_is_written_until_it_is_heard_of,
        ("attempts are counted",),
        Faults(reply_lost=0.3, effect_slow=0.5),
        ACROSS,
        options={"workers": 1},
        settings=EAGER,
    ),
]
