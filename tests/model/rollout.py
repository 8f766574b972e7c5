"""A rolling deploy: workers of the old code and of the new come and go over the same runs, in every order.

Each seat has one process after the other. Whoever deploys may start either version on an empty seat and drain a
process at any moment, and says at some moment which version stays: the new one, or the old one when the deploy is
rolled back. Workers claim, load, step, block, let go and drain as the engine does; a killed or frozen one loses its
lease, which another buries. A claim is asked and reaches the store later: so it may cross with anything, the drain of
its own worker among it.

`rollout_state.py` has the state and the invariants. Beside these the explorer holds it to two things that no single
state shows: left alone, the workers come to rest (no run goes to and fro for ever), and once one version stays, every
run has then finished, or is blocked by that version, which cannot carry it on (`goes_on`, `unsettled`).

Left out, since `lease.py` has it: lost answers, messages, terminations, poison, appends that outlive their worker's
memory. `CODE` says for each move which functions and queries it stands for. `without` takes out one of GUARDS: what
is left must be able to go wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import tests.model.rollout_state as at
from tests.model.explorer import Move, State
from tests.model.rollout_parts import Parts

GUARDS: Final = (
    "the fence is compared",
    "a session that has ended claims nothing",
    "who drains claims nothing more",
    "the end of a session lets go of what it holds",
    "a burial makes its runs due",
    "what lags behind is due at once",
    "a block leaves what was done",
    "a block is not for its own code",
    "a block remembers every code",
    "other code is another identity",
)

#: Move: the functions and queries that it stands for; () for what happens to a process.
CODE: Final[dict[str, tuple[str, ...]]] = {
    "deploy_over": (),
    "start": ("pledger.engine.engine:Engine.start", "sessions.sql:open_session"),
    "begin_drain": ("pledger.engine.engine:Engine.stop",),
    "intake_stops": ("pledger.engine.intake:Intake.stop",),
    "grace_over": (
        "pledger.engine.activities:Activities.interrupt",
        "pledger.engine.outcomes:Outcomes._requeue",
        "tasks.sql:put_task",
    ),
    "hand_back": ("pledger.engine.engine:Engine._hand_back", "pledger.engine.leaving:Leaving.release"),
    "close_session": (
        "pledger.engine.session:Session.close",
        "sessions.sql:end_session",
        "sessions.sql:orphan_runs",
        "sessions.sql:orphan_tasks",
    ),
    "kill": (),
    "lease_runs_out": ("sessions.sql:has_expired_session",),
    "renew_session": ("pledger.engine.session:Session._beat", "pledger.engine.engine:Engine._lost_lease"),
    "bury_sessions": ("pledger.engine.intake:Intake._look", "sessions.sql:end_expired_sessions"),
    "ask": (
        "pledger.engine.claims:Claims._claim_runs",
        "pledger.engine.claims:Claims._claim_tasks",
        "sessions.sql:look",
    ),
    "claim_runs": ("sessions.sql:claimable_runs", "sessions.sql:claim_runs", "sessions.sql:has_session"),
    "claim_tasks": ("tasks.sql:claimable_tasks", "tasks.sql:claim_task"),
    "load": ("pledger.engine.loading:Loader.load", "pledger.engine.loading:Loader._take_lost"),
    "read_mail": ("pledger.engine.mail:MailReader.read",),
    "activate": ("pledger.engine.runs:Runs._activate", "pledger.engine.leaving:Leaving.block_with"),
    "append": ("ledger.sql:append", "ledger.sql:append_and_close"),
    "block": ("ledger.sql:block", "pledger.engine.activities:Activities.leave_behind"),
    "release": ("ledger.sql:release", "ledger.sql:due_if_mail"),
    "attempt_ends": (
        "pledger.engine.outcomes:Outcomes.deliver",
        "pledger.engine.runs:Runs.outcome",
        "tasks.sql:finish_task",
    ),
}

#: Moves of whoever deploys, and of fate: nothing has to wait for them.
_FROM_OUTSIDE: Final = frozenset({"deploy_over", "kill", "lease_runs_out"})
_OPERATOR: Final = frozenset({"start", "begin_drain"})


class Rollout(Parts):
    """The model. kinds: of its runs. faults: how many kills and lost leases. without: a guard that is taken out."""

    def __init__(self, *kinds: str, faults: int, without: str | None = None) -> None:
        if without is not None and without not in GUARDS:
            raise ValueError(without)
        super().__init__(kinds, without)
        start = bytearray(self.width)
        start[at.FAULTS] = faults
        for b in self.run_at:
            start[b + at.DUE] = 1
        self.initial = bytes(start)
        self._acts = [getattr(self, name) for name in CODE]

    def moves(self, s: State) -> Iterator[Move]:
        for act in self._acts:
            yield from act(s)

    def goes_on(self, step: tuple[object, ...], s: State) -> bool:
        """Whether the move comes by itself, sooner or later."""
        return step[0] not in _FROM_OUTSIDE and (bool(s[at.STAYS]) or step[0] not in _OPERATOR)

    # Whoever deploys, and fate ----------------------------------------------------------------------------------------

    def deploy_over(self, s: State) -> Iterator[Move]:
        """Said while everybody is at rest: it changes nothing but what is deployed after it."""
        rests = all(s[b + at.STAGE] == at.RUNNING and not s[b + at.ASK] for b in self.seat_at.values())
        if not s[at.STAYS] and rests and not any(s[p + at.OP] for p in self.part_at.values()):
            for code in (at.OLD, at.NEW):
                n = bytearray(s)
                n[at.STAYS] = code
                yield ("deploy_over", code), bytes(n)

    def start(self, s: State) -> Iterator[Move]:
        for w, b in self.seat_at.items():
            if not s[b + at.CODE]:
                for code in (s[at.STAYS],) if s[at.STAYS] else (at.OLD, at.NEW):
                    n = bytearray(s)
                    n[b + at.CODE], n[b + at.STAGE], n[b + at.SESSION] = code, at.RUNNING, at.LIVE
                    yield ("start", w, code), bytes(n)

    def begin_drain(self, s: State) -> Iterator[Move]:
        for w, b in self.seat_at.items():
            if s[b + at.STAGE] == at.RUNNING and s[b + at.CODE] != s[at.STAYS]:
                n = bytearray(s)
                n[b + at.STAGE] = at.STOPPING
                yield ("begin_drain", w), bytes(n)

    def kill(self, s: State) -> Iterator[Move]:
        for w, b in self.seat_at.items():
            if s[b + at.CODE] and s[at.FAULTS]:
                n = bytearray(s)
                self.fault(n)
                if s[b + at.SESSION]:
                    n[b + at.DEAD] = 1
                    self.hand_over(n, w, w + 2)
                self.leave_seat(n, w)
                yield ("kill", w), bytes(n)

    def lease_runs_out(self, s: State) -> Iterator[Move]:
        for w, b in self.seat_at.items():
            if s[b + at.SESSION] == at.LIVE and s[at.FAULTS]:
                n = bytearray(s)
                self.fault(n)
                n[b + at.SESSION] = at.OVER
                yield ("lease_runs_out", w), bytes(n)

    # A worker's way out -----------------------------------------------------------------------------------------------

    def intake_stops(self, s: State) -> Iterator[Move]:
        """A claim on its way is waited for, and what it brings is loaded."""
        for w, b in self.seat_at.items():
            loading = any(s[self.part_at[w, r] + at.HELD] == at.CLAIMED for r in self.runs)
            if s[b + at.STAGE] == at.STOPPING and not s[b + at.ASK] and not loading:
                n = bytearray(s)
                n[b + at.STAGE] = at.GRACE
                yield ("intake_stops", w), bytes(n)

    def grace_over(self, s: State) -> Iterator[Move]:
        """Attempts that still run are told to stop; they do, and are put back, or they do not heed it."""
        for w, b in self.seat_at.items():
            if s[b + at.STAGE] != at.GRACE or not any(s[self.part_at[w, r] + at.ATTEMPT] for r in self.runs):
                continue
            n = bytearray(s)
            n[b + at.STAGE] = at.GRACE_OVER
            yield ("grace_over", w, "and nobody heeds it"), bytes(n)
            for r in self.runs:
                self.put_back(n, w, r)
            yield ("grace_over", w), bytes(n)

    def hand_back(self, s: State) -> Iterator[Move]:
        for w, b in self.seat_at.items():
            parts = [self.part_at[w, r] for r in self.runs]
            held = [r for r in self.runs if s[self.part_at[w, r] + at.HELD] == at.LOADED]
            stage = s[b + at.STAGE]
            idle = stage == at.GRACE_OVER or (stage == at.GRACE and not any(s[p + at.ATTEMPT] for p in parts))
            again = stage == at.HANDING and held and self.without == "who drains claims nothing more"
            lags_behind = any(s[p + at.OP] or s[p + at.OUT] for p in parts)
            if not again and (lags_behind or not idle):
                continue
            n = bytearray(s)
            n[b + at.STAGE] = at.HANDING
            for r in held:
                p = self.part_at[w, r]
                lags = s[p + at.ATTEMPT] == at.EAGER and self.without != "what lags behind is due at once"
                n[p + at.HELD], n[p + at.OP] = at.LEAVING, at.RELEASE
                n[p + at.OP_DUE] = lags or s[p + at.VIEW] != 1
            yield ("hand_back", w), bytes(n)

    def close_session(self, s: State) -> Iterator[Move]:
        for w, b in self.seat_at.items():
            if s[b + at.STAGE] == at.HANDING and not any(s[self.part_at[w, r] + at.HELD] for r in self.runs):
                n = bytearray(s)
                if self.without != "the end of a session lets go of what it holds":
                    self.end_session(n, w)
                self.leave_seat(n, w)
                yield ("close_session", w), bytes(n)

    # Sessions ---------------------------------------------------------------------------------------------------------

    def renew_session(self, s: State) -> Iterator[Move]:
        for w, b in self.seat_at.items():
            if not s[b + at.CODE] or s[b + at.SESSION] == at.LIVE:
                continue
            n = bytearray(s)
            if s[b + at.SESSION] == at.OVER:
                n[b + at.SESSION] = at.LIVE
            else:
                for r in self.runs:
                    p = self.part_at[w, r]
                    n[p : p + at.PART] = bytes(at.PART)
                if s[b + at.STAGE] == at.RUNNING:
                    n[b + at.SESSION] = at.LIVE
            if n != s:
                yield ("renew_session", w), bytes(n)

    def bury_sessions(self, s: State) -> Iterator[Move]:
        looks = [w for w, b in self.seat_at.items() if s[b + at.STAGE] == at.RUNNING and s[b + at.SESSION] == at.LIVE]
        over = any(s[b + at.DEAD] or s[b + at.SESSION] == at.OVER for b in self.seat_at.values())
        if looks and over:
            n = bytearray(s)
            due = self.without != "a burial makes its runs due"
            for w, b in self.seat_at.items():
                if s[b + at.DEAD]:
                    n[b + at.DEAD] = 0
                    self.end_session(n, w + 2, due=due)
                if s[b + at.SESSION] == at.OVER:
                    n[b + at.SESSION] = 0
                    n[b + at.ASK] += at.STALE * (0 < s[b + at.ASK] < at.STALE + 1)
                    self.end_session(n, w, due=due)
            yield ("bury_sessions",), bytes(n)

    # Claims -----------------------------------------------------------------------------------------------------------

    def ask(self, s: State) -> Iterator[Move]:
        for w, b in self.seat_at.items():
            stages = (at.RUNNING, at.HANDING) if self.without == "who drains claims nothing more" else (at.RUNNING,)
            if s[b + at.STAGE] not in stages or s[b + at.ASK] or not s[b + at.SESSION]:
                continue
            for what, found in ((at.ASK_RUNS, self.claimable(s, w)), (at.ASK_TASK, self.claimable_tasks(s, w))):
                if found:
                    n = bytearray(s)
                    n[b + at.ASK] = what
                    yield ("ask", w, "for runs" if what == at.ASK_RUNS else "for tasks"), bytes(n)

    def claim_runs(self, s: State) -> Iterator[Move]:
        for w, b in self.seat_at.items():
            asked = s[b + at.ASK]
            if asked not in (at.ASK_RUNS, at.ASK_RUNS + at.STALE):
                continue
            n = bytearray(s)
            n[b + at.ASK] = 0
            owner = w if asked == at.ASK_RUNS else at.GHOST
            for r in self.claimable(s, w) if owner == w or self.ghosts() else ():
                run, p = self.run_at[r], self.part_at[w, r]
                self.raise_fence(n, r)
                n[run + at.OWNER], n[run + at.DUE], n[run + at.BLOCKED] = owner, 0, 0
                n[p + at.HELD], n[p + at.AGE], n[p + at.VIEW] = at.CLAIMED, 0, s[run + at.LAST]
            yield ("claim_runs", w), bytes(n)

    def claim_tasks(self, s: State) -> Iterator[Move]:
        for w, b in self.seat_at.items():
            asked = s[b + at.ASK]
            if asked not in (at.ASK_TASK, at.ASK_TASK + at.STALE):
                continue
            n = bytearray(s)
            n[b + at.ASK] = 0
            owner = w if asked == at.ASK_TASK else at.GHOST
            for r in self.claimable_tasks(s, w) if owner == w or self.ghosts() else ():
                run = self.run_at[r]
                n[run + at.TASK], n[run + at.TASK_OWNER] = at.STARTED, owner
                self.begin(n, w, r, at.BY_ROW)
            yield ("claim_tasks", w), bytes(n)

    # Runs in memory ---------------------------------------------------------------------------------------------------

    def load(self, s: State) -> Iterator[Move]:
        for (w, r), p in self.part_at.items():
            if s[p + at.HELD] != at.CLAIMED or s[p + at.OP]:
                continue
            n, run = bytearray(s), self.run_at[r]
            if not self.fits(s[self.seat_at[w] + at.CODE], s, r):
                n[p + at.HELD], n[p + at.OP] = at.LEAVING, at.BLOCK
            else:
                n[p + at.HELD] = at.LOADED
                if s[p + at.VIEW] == 1 and not s[p + at.AGE]:
                    if s[run + at.TASK] == at.DONE:
                        n[p + at.OUT] = 1
                    elif not s[run + at.TASK]:  # an eager attempt died with its worker: the next one is queued
                        n[run + at.TASK] = at.QUEUED
            yield ("load", w, r + 1), bytes(n)

    def read_mail(self, s: State) -> Iterator[Move]:
        for (w, r), p in self.part_at.items():
            mine = s[p + at.HELD] == at.LOADED and not s[p + at.OP] and not s[p + at.AGE] and s[p + at.VIEW] == 1
            if mine and s[self.run_at[r] + at.TASK] == at.DONE and not s[p + at.OUT]:
                n = bytearray(s)
                n[p + at.OUT] = 1
                yield ("read_mail", w, r + 1), bytes(n)

    def activate(self, s: State) -> Iterator[Move]:
        for (w, r), p in self.part_at.items():
            has_input = s[p + at.VIEW] != 1 or s[p + at.OUT]
            if s[p + at.HELD] != at.LOADED or s[p + at.OP] or not has_input:
                continue
            n, seat = bytearray(s), self.seat_at[w]
            if s[seat + at.STAGE] == at.HANDING:
                continue
            if self.steps(s[seat + at.CODE], s, r):
                n[p + at.OP] = at.APPEND
            else:
                n[p + at.HELD], n[p + at.OP] = at.LEAVING, at.BLOCK
            yield ("activate", w, r + 1), bytes(n)

    def append(self, s: State) -> Iterator[Move]:
        for (w, r), p in self.part_at.items():
            if s[p + at.OP] != at.APPEND:
                continue
            n, run = bytearray(s), self.run_at[r]
            fenced = not s[p + at.AGE] or self.without == "the fence is compared"
            if not fenced or s[run + at.LAST] != s[p + at.VIEW]:
                self.forget(n, w, r)
                yield ("append", w, r + 1, "and loses"), bytes(n)
                continue
            if s[p + at.AGE]:
                n[at.WRONG] = at.OLD_FENCE
            n[run + at.LAST] += 1
            n[p + at.VIEW] += 1
            n[p + at.OP] = n[p + at.OUT] = n[run + at.TRIED] = 0
            n[run + at.TASK] = n[run + at.TASK_OWNER] = n[run + at.DONE_ONCE] = 0
            code, last = s[self.seat_at[w] + at.CODE], n[run + at.LAST]
            if last == at.CLOSED:
                self.orphan(n, r, due=False)
                self.forget(n, w, r)
            else:
                n[run + (at.BY_1 if last == 1 else at.BY_2)] = code
            if last == 1:  # its activity goes to the queue, or is started here at once
                n[run + at.TASK] = at.QUEUED
                yield ("append", w, r + 1), bytes(n)
                if s[self.seat_at[w] + at.STAGE] != at.RUNNING:
                    continue  # a worker that goes starts nothing
                n[run + at.TASK] = 0
                self.begin(n, w, r, at.EAGER)
            yield ("append", w, r + 1), bytes(n)

    def block(self, s: State) -> Iterator[Move]:
        for (w, r), p in self.part_at.items():
            if s[p + at.OP] == at.BLOCK:
                n, run, code = bytearray(s), self.run_at[r], s[self.seat_at[w] + at.CODE]
                if not s[p + at.AGE]:
                    if self.without != "a block leaves what was done":
                        self.leave_behind(n, w, r)
                    self.orphan(n, r, due=True)
                    n[run + at.BLOCKED] = code
                    n[run + at.TRIED] |= code
                self.forget(n, w, r)
                yield ("block", w, r + 1), bytes(n)

    def release(self, s: State) -> Iterator[Move]:
        for (w, r), p in self.part_at.items():
            if s[p + at.OP] == at.RELEASE:
                n, run = bytearray(s), self.run_at[r]
                if not s[p + at.AGE]:
                    mail = s[run + at.TASK] == at.DONE or not s[run + at.LAST]
                    self.orphan(n, r, due=bool(s[p + at.OP_DUE] or mail))
                self.forget(n, w, r)
                yield ("release", w, r + 1), bytes(n)

    def attempt_ends(self, s: State) -> Iterator[Move]:
        """Its outcome goes to the run, if that is here and not about to leave, or into the row, if it still counts."""
        for (w, r), p in self.part_at.items():
            if not s[p + at.ATTEMPT] or s[p + at.OP] == at.BLOCK:
                continue
            n, run = bytearray(s), self.run_at[r]
            n[p + at.ATTEMPT] = 0
            started = s[run + at.TASK] == at.STARTED and s[run + at.TASK_OWNER] == w
            counts = s[p + at.ATTEMPT] == at.EAGER or started
            if s[p + at.HELD] == at.LOADED and s[self.seat_at[w] + at.STAGE] != at.HANDING and counts:
                n[p + at.OUT] = 1
                if s[self.seat_at[w] + at.SESSION] == at.LIVE and not s[p + at.AGE]:
                    n[run + at.DONE_ONCE] = 1
            elif started:
                n[run + at.TASK], n[run + at.TASK_OWNER] = at.DONE, 0
                n[run + at.DONE_ONCE] = 1
                if not s[run + at.OWNER]:
                    n[run + at.DUE] = 1
            yield ("attempt_ends", w, r + 1), bytes(n)
