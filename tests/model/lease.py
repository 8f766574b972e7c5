"""The lease-and-fence protocol of sessions, runs and task rows, as the engine and its stores have it.

`lease_links.py` says for each move which functions of the engine and which queries of the SQLite store it stands for
and for every operation and verb of `engine/port/` which moves have it, or why none does; `test_links.py` holds both
to the code. The moves are in `lease_store.py` and `lease_worker.py`, the state and the invariants in `lease_state.py`.

A worker that stands still is one whose moves are not taken, however long: so a pause of any length, past its lease too,
is in every state. A lost answer, a killed process and a lease that runs out while its worker lives are moves of their
own, at most as many as `faults` says. `without` takes out one of GUARDS: what is left must be able to go wrong.

Left out: time. What is due is due at once; a lease may run out at any moment; nobody's clock matters, since only the
store says which lease is over. Where the engine hears an answer and does nothing by it, hearing is no move of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Final, TypeAlias

import tests.model.lease_state as at
from tests.model.explorer import Move, State
from tests.model.lease_links import CODE
from tests.model.lease_store import StoreMoves
from tests.model.lease_worker import WorkerMoves

GUARDS: Final = (
    "the fence is compared",
    "the last event is compared",
    "a repeated append is known again",
    "letting go looks at the mail",
    "a burial makes its runs due",
    "a session that has ended bears no run",
    "a lost attempt counts",
    "a retry is not put over what is there",
    "who sent a message looks, whatever became of the answer",
    "after a lost answer the worker asks what it owns",
    "one worker's writes keep their order",
)

Act: TypeAlias = Callable[["Lease", State, int, int], Iterator[Move]]

#: Moves that are no worker's.
CLIENTS: Final = ("start", "send_from_elsewhere", "terminate")
#: Of each other move a field of the worker and the values at which it can be taken at all: most need not be asked.
CONCERNS: Final[dict[str, tuple[int, bytes]]] = {
    "append": (at.OP, bytes([at.APPEND])),
    "append_late": (at.STRAY, b"\1"),
    "release": (at.OP, bytes([at.RELEASE])),
    "block": (at.OP, bytes([at.BLOCK])),
    "start_here": (at.OP, bytes([at.START])),
    "put_task": (at.PUT, b"\1"),
    "finish_task": (at.FINISH, b"\1\2"),
    "send_from_here": (at.LEASE, b"\1"),
    "open_session": (at.LEASE, b"\0"),
    "lease_runs_out": (at.SESSION, b"\1"),
    "renew_session": (at.LEASE, b"\1"),
    "bury_sessions": (at.SESSION, b"\2"),
    "kill": (at.LIFE, b"\1\2"),
    "restart": (at.LIFE, b"\0"),
    "begin": (at.LEASE, b"\1"),
    "claim_runs": (at.HELD, b"\0"),
    "look_for_lost_answers": (at.DOUBT, b"\1"),
    "load": (at.HELD, bytes([at.CLAIMED])),
    "activate": (at.INPUTS, bytes(range(1, 16))),
    "answered": (at.PHASE, bytes([at.WON, at.LOST, at.OTHER])),
    "woken_runs": (at.LEASE, b"\1"),
    "read_mail": (at.NEWS, b"\1"),
    "look_for_ended": (at.HELD, bytes([at.LOADED])),
    "let_go": (at.HELD, bytes([at.LOADED])),
    "claim_tasks": (at.ATTEMPT, b"\0"),
    "attempt_begins": (at.ATTEMPT, bytes([at.TAKEN_ROW])),
    "attempt_ends": (at.ATTEMPT, bytes([at.EAGERLY, at.BY_ROW, at.LOST_ROW])),
}


class Lease(StoreMoves, WorkerMoves):
    """The model. faults: how many may happen. without: guards that are taken out."""

    def __init__(
        self, faults: int, *, old_code: bool = True, leave_out: Collection[str] = (), without: str | None = None
    ) -> None:
        if without is not None and without not in GUARDS:
            raise ValueError(without)
        self.without = without
        start = bytearray(at.SHARED + 2 * at.WIDTH)
        start[at.FAULTS] = faults
        self.codes = (at.OLD_CODE, at.NEW_CODE) if old_code else (at.NEW_CODE,)
        for b, code in zip(at.BASES, (self.codes[0], at.NEW_CODE), strict=True):
            start[b + at.LIFE] = code
        self.initial = bytes(start)
        left = [name for name in CODE if name not in leave_out]
        self.clients: list[Act] = [getattr(Lease, name) for name in left if name in CLIENTS]
        self.acts = [(*CONCERNS[name], getattr(Lease, name)) for name in left if name not in CLIENTS]
        self._concerned: dict[bytes, list[Act]] = {}

    canonical = staticmethod(at.canonical)
    wrong = staticmethod(at.wrong)
    tell = staticmethod(at.tell)

    def moves(self, s: State) -> Iterator[Move]:
        for act in self.clients:
            yield from act(self, s, 0, 0)
        for worker, b in enumerate(at.BASES, 1):
            part = s[b : b + at.WIDTH]
            acts = self._concerned.get(part)
            if acts is None:  # a worker has few states of its own, and each is met again and again
                acts = [act for field, values, act in self.acts if part[field] in values]
                self._concerned[part] = acts
            for act in acts:
                yield from act(self, s, worker, b)
