"""Watches what begins of activities that depend on something: within the budget, and as the circuit lets it through.

It counts for itself what workers report and take; of a dependency's row it only looks at the phase. Of a ledger in
memory, where each claim can be seen at its commit point.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pledger.engine.budgets import FRESH_S
from pledger.engine.port import circuit

if TYPE_CHECKING:
    from pledger.engine.budgets import Budgets
    from pledger.engine.port.circuit import Dependency, Tally
    from pledger.engine.port.lanes import Claim
    from pledger.history.budget import RetryBudget
    from pledger.store.memory import State
    from pledger.testing.findings import Findings

Place: TypeAlias = tuple[str, str]
"""(namespace, name of the dependency)."""

#: The verbs that change a dependency's row.
WRITERS: Final = frozenset(
    {"state_dependencies", "report_calls", "ask_dependency", "claim_queued", "claim_lifted_tasks"}
)
#: Clocks of processes run fast or slow by less than this within the time that counts here.
_DRIFT_S: Final = 0.01


class Circuits:
    """findings: where to say what was looked at and what broke it. budgets: by activity type. now_s: virtual time;
    store_ms: by the store's clock."""

    def __init__(
        self,
        findings: Findings,
        budgets: Mapping[str, RetryBudget],
        *,
        now_s: Callable[[], float],
        store_ms: Callable[[], int],
    ) -> None:
        self._findings = findings
        self._budgets = budgets
        self._now_s = now_s
        self._store_ms = store_ms
        self._seen_ms = store_ms()
        self._passed_ms = 0
        self._shut_s: dict[Place, float] = {}
        self._calls: Counter[Place] = Counter()
        self._retries: Counter[Place] = Counter()
        self._tried: dict[tuple[Place, int], set[tuple[int, int, int]]] = defaultdict(set)

    def remember(self) -> tuple[Counter[Place], Counter[Place], int]:
        """For `went_back`."""
        return self._calls.copy(), self._retries.copy(), self._passed_ms

    def went_back(self, known: tuple[Counter[Place], Counter[Place], int], _: State) -> None:
        """The rows are as they were, and so are the counts: a clock has gone on."""
        calls, retries, passed_ms = known
        self._calls, self._retries = calls.copy(), retries.copy()
        self._passed_ms = max(self._passed_ms, passed_ms)
        self._shut_s.clear()
        self._tried.clear()

    def watch(self, budgets: Budgets, namespace: str) -> None:
        """Whenever a worker starts something without asking, look whether it may."""
        may_start = budgets.may_start

        def watched(activity_type: str) -> bool:
            found = may_start(activity_type)
            if found and activity_type in self._budgets:
                self._let_start((namespace, self._budgets[activity_type].name))
            return found

        budgets.may_start = watched  # type: ignore[method-assign]

    def wrote(self, verb: str, args: tuple[Any, ...], namespace: str, state: State) -> None:
        """A verb of WRITERS is at its commit point."""
        # A clock that goes back and forth brings tokens each time that it goes forth.
        self._passed_ms += max(0, self._store_ms() - self._seen_ms)
        self._seen_ms = self._store_ms()
        if verb == "report_calls":
            self._reported(namespace, args[1])
        for name, row in _rows(state, namespace).items():
            if row.phase == "closed":
                self._shut_s.pop((namespace, name), None)
            else:
                self._shut_s.setdefault((namespace, name), self._now_s())

    def claimed(self, namespace: str, claim: Claim, state: State) -> None:
        """By a claim in order, after `wrote`."""
        for task in claim.tasks:
            budget = self._budgets.get(task.activity_type)
            if budget is None or task.lost or task.cancel_requested:
                continue
            place, row = (namespace, budget.name), _rows(state, namespace)[budget.name]
            what = f"attempt {task.attempt} of {task.activity_type} in {task.workflow_id}"
            self._findings.checks("nothing begins while a circuit is open")
            if row.phase in {"open", "paused"}:
                self._findings.violated(
                    "nothing begins while a circuit is open", f"{what}: {budget.name} is {row.phase}"
                )
            if row.phase == "half_open":
                self._findings.checks("a half open circuit is tried with few")
                tried = self._tried[place, row.opened]
                tried.add((task.run_key, task.event_id, task.attempt))
                running = sum(_runs(state, *each) for each in tried)
                if running > row.limit:
                    self._findings.violated(
                        "a half open circuit is tried with few", f"{what}: {running} of {row.limit}"
                    )
            if task.attempt > 1:
                self._retries[place] += 1
                self._check_budget(place, budget, what)

    def _reported(self, namespace: str, tallies: Mapping[str, Sequence[Tally]]) -> None:
        for name, each in tallies.items():
            self._calls[namespace, name] += sum(tally.calls for tally in each)

    def _check_budget(self, place: Place, budget: RetryBudget, what: str) -> None:
        self._findings.checks("retries are within their budget")
        brought = budget.ratio * self._calls[place] + budget.minimum_per_second * self._passed_ms / 1000
        most = brought + max(1.0, budget.minimum_per_second)
        if self._retries[place] > most + 1e-6:
            self._findings.violated(
                "retries are within their budget", f"{what}: {self._retries[place]} retries, {most:g} may be"
            )

    def _let_start(self, place: Place) -> None:
        """A worker that has known for less than 2 s that the circuit is closed may be late by as much."""
        self._findings.checks("nothing begins while a circuit is open")
        shut_s = self._shut_s.get(place)
        if shut_s is not None and self._now_s() - shut_s > FRESH_S + _DRIFT_S:
            late_s = self._now_s() - shut_s
            self._findings.violated(
                "nothing begins while a circuit is open", f"{place[1]}, eagerly, {late_s:.3f} s after that"
            )


def _rows(state: State, namespace: str) -> Mapping[str, Dependency]:
    """As they are now, whether that has been written or not."""
    rows, now_ms = state.dependencies.get(namespace, {}), state.clock()
    return {name: circuit.seen(row, now_ms) for name, row in rows.items()}


def _runs(state: State, run_key: int, event_id: int, attempt: int) -> bool:
    task = state.tasks.get(run_key, {}).get(event_id)
    # One that was lost is taken to be judged, and does not run.
    return task is not None and (task.state, task.attempt, task.lost) == ("started", attempt, False)
