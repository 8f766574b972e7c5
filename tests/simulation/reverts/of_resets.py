"""Reverts of what keeps a run that was reset from doing again, under another name, what the run before has done."""

from __future__ import annotations

from typing import Any

import pytest

from pledger.engine import loading, resetting
from pledger.history import resets
from pledger.testing import Faults
from tests.simulation.reverts.revert import Revert


def a_key_goes_by_the_name_of_the_activity_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(resets, "digest", lambda _: "")


def tokens_begin_anew(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(resets, "tokens_above", lambda _: 0)


def what_was_carried_over_is_attempted_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(loading, "_OUTCOMES", ())
    patch.setattr(resetting, "_OUTCOMES", ())


def messages_are_given_again_with_those_that_count(patch: pytest.MonkeyPatch) -> None:
    rule = resetting.Draft._inputs

    def inputs(self: resetting.Draft, event: Any) -> list[Any]:
        given = rule(self, event)
        return [*given, *(each for each in given if type(each).__name__ == "SignalReceived")]

    patch.setattr(resetting.Draft, "_inputs", inputs)


_RESETS: dict[str, Any] = {"faults": Faults(reset=1.0, restart=0.1), "cases": ("errand",) * 3}
_NO_RESULT = ("results are true", "a reset repeats nothing", "one outcome per position", "no run blocks")

REVERTS = [
    Revert(a_key_goes_by_the_name_of_the_activity_alone, ("one key, one input",), **_RESETS),
    Revert(tokens_begin_anew, ("tokens go up over a reset",), **_RESETS),
    Revert(what_was_carried_over_is_attempted_again, _NO_RESULT, **_RESETS),
    Revert(messages_are_given_again_with_those_that_count, ("messages are delivered once",), **_RESETS),
]
