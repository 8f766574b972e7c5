"""The bounded models of the protocols: every state, and a shortest trace for every guard that is taken out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from proof.results import Explored, Violation
from proof.spread import spread
from tests.model import explorer, lease, mailbox, rollout, test_lease
from tests.model.rollout_state import KINDS
from tests.model.test_rollout import FOUND

#: (model, what of it, options, guard that is taken out)
Job: TypeAlias = tuple[str, str, dict[str, Any], str]

STATES_MAX: Final = 10_000_000
#: Enough for the trace of a missing guard.
REVERT_STATES_MAX: Final = 200_000


def jobs(*, full: bool) -> list[Job]:
    """full: the whole of what one fault can do to a lease, too."""
    parts = [*test_lease.WHOLE, *(test_lease.FULL if full else [])]
    whole: list[Job] = [("leases and fences", name, options, "") for name, options, _ in parts]
    whole.append(("mailbox with roll-over", "three faults", {"faults": 3}, ""))
    faults = 1 if full else 0
    whole += [("rolling deploy", f"a run, {kind}", {"kind": kind, "faults": faults}, "") for kind in KINDS]
    # The long ones first, so that the cores end at about the same time.
    whole.reverse()
    whole += [("leases and fences", "", {"faults": 1, "old_code": False}, guard) for guard in lease.GUARDS]
    whole += [("mailbox with roll-over", "", {"faults": 1}, guard) for guard in mailbox.GUARDS]
    whole += [("rolling deploy", "", {"kind": kind, "faults": n}, guard) for guard, (_, kind, n, _) in FOUND.items()]
    return whole


def run(done: Callable[[int], None], *, full: bool) -> tuple[list[Explored], list[Violation]]:
    """done: told of each exploration that is over."""
    found, violations = [], []
    for explored, violation in spread(_explore, jobs(full=full)):
        found.append(explored)
        violations += violation
        done(1)
    found.sort(key=lambda each: (each.guard != "", each.model, each.guard))
    return found, violations


def _explore(job: Job) -> tuple[Explored, list[Violation]]:
    name, part, options, guard = job
    explored = _look(name, options, guard or None, REVERT_STATES_MAX if guard else STATES_MAX)
    shown = f"{name}: {part}" if part else name
    trace = None if explored.violation is None else len(explored.violation.trace) - 1
    found = Explored(shown, guard, explored.states, explored.depth, trace)
    again = "make test ARGS=tests/model"
    if guard and explored.violation is None:
        return found, [Violation(f"{name}: without “{guard}” nothing was found", again)]
    if not guard and explored.violation is not None:
        return found, [Violation(f"{shown}: {explored.violation.what}", again)]
    if not guard and not explored.complete:
        return found, [Violation(f"{shown}: more than {STATES_MAX:,} states, and the rest not looked at", again)]
    return found, []


def _look(name: str, options: dict[str, Any], without: str | None, states_max: int) -> explorer.Explored:
    if name == "rolling deploy":
        model = rollout.Rollout(options["kind"], faults=options["faults"], without=without)
        return explorer.explore_to_the_end(model, states_max)
    if name.startswith("lease"):
        return explorer.explore(lease.Lease(**options, without=without), states_max)
    return explorer.explore(mailbox.Mailbox(**options, without=without), states_max)
