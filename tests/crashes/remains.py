"""What processes have left, whether they were killed or went: held against every promise that simulations check.

The file is read row by row into what the simulations' invariants look at; their auditor reads each history as if it saw
it grow.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import apsw

from pledger.engine.port.records import RunRow
from pledger.history import events, transition
from pledger.machine.definitions import WorkflowDefinition
from pledger.testing.audit import Auditor
from pledger.testing.invariants import ALL
from pledger.testing.journal import Journal, Outcome, Program, Signalled, Updated
from pledger.testing.sqlite_views import read_state, read_tables
from pledger.testing.views import StateView
from tests.crashes.apart import PREFIX
from tests.crashes.cases import Crash
from tests.crashes.diary import Line, of_kind, read
from tests.crashes.life import LEDGER
from tests.crashes.outside import KeptWorld
from tests.reference import shop
from tests.reference.families import OF_CHILDREN
from tests.reference.truths import Ending


class Remains:
    """A folder, as far as invariants of simulations ask for it. violations: what is wrong with it, in words."""

    def __init__(self, crash: Crash, folder: Path) -> None:
        self._crash = crash
        self._folder = folder
        self.lines = read(folder)
        self.violations: list[str] = [told for [told] in of_kind(self.lines, "violated")]
        self.workflows = {each.name: each for each in map(WorkflowDefinition.of, crash.workflows())}
        self.activities = {each.name: each for each in crash.activities}
        self.world = KeptWorld(self.lines)
        self.programs = crash.programs()
        for number, program in enumerate(self.programs):
            _recall(self.lines, number, program)
        ends = [at_ms for at_ms, _ in of_kind(self.lines, "ended")]
        database = apsw.Connection(str(folder / LEDGER))

        def query(sql: str, bindings: tuple[Any, ...]) -> list[tuple[Any, ...]]:
            return database.execute(sql, bindings).fetchall()

        try:
            self._check_file(database)
            self.state = read_state(query, lambda: ends[-1])
            self.sold = read_tables(query).get(shop.TABLE, [])
        finally:
            database.close()
        self.auditor = Auditor(self.state.clock, self.workflows if crash.deploy else ())
        self._audit()

    def _check_file(self, database: apsw.Connection) -> None:
        found = database.execute("PRAGMA integrity_check").fetchall()
        if found != [("ok",)]:
            self.violations.append(f"the file is whole: {found}")

    def _audit(self) -> None:
        self.auditor.read_clock()
        self.auditor.setbacks.recovered(self.state)
        self.auditor.check_all_wakers(StateView(self.state))
        self.violations += self.auditor.violations
        for run_key, record in self.auditor.records.by_run.items():
            for stored in self.state.histories[run_key]:
                found = transition.decode(stored.body)
                fired = [each.started_event_id for each in found.inputs if isinstance(each, events.TimerFired)]
                self.violations += [
                    f"timers never early: that of event {event_id} of {record.run_id} at {found.time_ms}"
                    for event_id in fired
                    if found.time_ms < record.timers[event_id]
                ]

    def check(self) -> None:
        """What must hold at any moment."""
        for invariant in ALL:
            self.violations += invariant(self)
        self.violations += shop.each_step_sold_once(self, self.sold)
        self.violations += [
            f"no secret is in a file: {path.name} has {form!r}"
            for path in self._folder.iterdir()
            for form in shop.FORMS
            if form.encode() in path.read_bytes()
        ]
        for (run_id, event_id), activity in self.world.activities.items():
            what = f"{activity.activity_type} at event {event_id} of {run_id}"
            numbers = [each.number for each in activity.attempts]
            if len(set(numbers)) < len(numbers):
                self.violations.append(f"attempts are counted: {what} began as {numbers}")
            if 0 < activity.maximum < len(numbers):
                self.violations.append(f"never more than maximum_attempts: {what} began as {numbers}")
            if len(activity.keys) > 1:
                self.violations.append(f"one idempotency key over all attempts: {what} has {activity.keys}")

    def check_ending(self) -> None:
        """What must hold once everybody has left in peace."""
        # What its children end as, its own ending tells.
        rows = [row for row in self.state.runs.values() if row.workflow_type not in OF_CHILDREN]
        if len({row.chain_key for row in rows}) != 1:
            self.violations.append(f"one start, one run: there are {rows}")
            return
        self.violations += self._crash.truth(self._ending(rows[-1]))
        # Those of the killed are buried by the next worker that looks once their lease is over.
        last = f"life-{sum(1 for _ in of_kind(self.lines, 'ended'))} "
        left = [each for each in self.state.sessions.values() if each.identity.startswith(last)]
        if left:
            self.violations.append(f"nothing is left: {left}")
        if not all(program.journal.outcomes for program in self.programs):
            self.violations.append("everything finishes: a client was not told of the end")

    def _ending(self, row: RunRow) -> Ending:
        result = self.auditor.records.by_run[row.run_key].state.result
        workflow = self.workflows[row.workflow_type]
        value = None if result is None else workflow.signature.decode_result(result)
        effects = {what: len(receipts) for what, receipts in self.world.asked.items()}
        files = {path.name.removeprefix(PREFIX): 1 for path in self._folder.glob(f"{PREFIX}*")}
        return Ending(row.status, value, Counter({**effects, **files, **shop.sales(self.sold)}))


def _recall(lines: list[Line], number: int, program: Program) -> None:
    """Into the program's journal, what was acknowledged to it in all its lives."""

    def mine(kind: str) -> list[Any]:
        return [value for whose, value in of_kind(lines, kind) if whose == number]

    program.journal = Journal(
        run_ids=mine("started"),
        signals=[Signalled(*each, order) for order, each in enumerate(mine("signal"))],
        refused=mine("refused"),
        cancels=[(run_id, request_id) for run_id, request_id in mine("cancel")],
        terminated=mine("terminated"),
        outcomes=[Outcome(*each) for each in mine("outcome")],
        offered=[(run_id, event_id, result) for run_id, event_id, result in mine("offered")],
        completed=[(run_id, event_id, result) for run_id, event_id, result in mine("completed")],
        updates_accepted=[(run_id, update_id) for run_id, update_id in mine("accepted")],
        updates=[Updated(*each) for each in mine("updated")],
    )
