"""The processes of a simulation: each has a seat, and who dies or leaves is followed by another one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pledger.engine.limits import Limits
from pledger.testing.dice import fork
from pledger.testing.process import Process, Surroundings
from pledger.testing.scheduler import NodeClock

if TYPE_CHECKING:
    from pledger.store.memory import State
    from pledger.testing.conditions import Conditions
    from pledger.testing.journal import Program

#: A seat is empty for so long at most, in virtual seconds: longer than every lease.
EMPTY_MAX_S: Final = 8.0


@dataclass(slots=True)
class Seat:
    """A place for a process: who sits there has this name and serves these queues (none: a mere client)."""

    name: str
    namespace: str
    task_queues: list[str]
    limits: Limits
    lives: int = 0
    process: Process | None = None


class Seats:
    """code: the identity of the code with which processes start from now on. all_closed: whether nothing is left to
    do; then empty seats stay empty once it is calm."""

    def __init__(
        self,
        conditions: Conditions,
        surroundings: Surroundings,
        dice: random.Random,
        *,
        programs: Sequence[Program],
        all_closed: Callable[[], bool],
    ) -> None:
        self.code = "code-1"
        self._conditions = conditions
        self._surroundings = surroundings
        self._scheduler = surroundings.scheduler
        self._dice = dice
        self._programs = programs
        self._all_closed = all_closed
        self._seats: list[Seat] = []
        self._lives: list[Process] = []

    def set_out(
        self,
        workers: int,
        clients: int,
        limits: Limits | None,
        task_queues: Sequence[str],
        namespaces: Sequence[str],
        retention_ms: int,
    ) -> None:
        """As in `Simulation`."""
        places = len(namespaces)
        self._seats = [
            Seat(
                f"worker-{n + 1}",
                namespaces[n % places],
                # The first one of a namespace serves them all, so that every queue is served.
                [each for each in task_queues if n < places or each == task_queues[0] or self._toss()],
                replace(limits or self._draw_limits(), retention_ms=retention_ms),
            )
            for n in range(workers)
        ]
        self._seats += [
            Seat(f"client-{n + 1}", namespaces[n % places], [], self._draw_limits()) for n in range(clients)
        ]

    def draw_place(self) -> tuple[int, str]:
        """Any seat: its number, and its namespace."""
        number = int(self._dice.random() * len(self._seats))
        return number, self._seats[number].namespace

    def present(self) -> list[Process]:
        return [each.process for each in self._seats if each.process is not None]

    def anybody(self) -> Process | None:
        present = self.present()
        return present[int(self._dice.random() * len(present))] if present else None

    def fill(self) -> None:
        for seat in self._seats:
            self._sit_down(seat)

    def leave(self) -> None:
        """Everybody shuts down gracefully."""
        for process in self.present():
            process.leave()

    def hindered(self) -> Iterator[str]:
        """Who is still there, and what for."""
        for process in self.present():
            yield f"{process.name} waits: {'; '.join(process.loop.pending())}"

    def dispose(self) -> None:
        for life in self._lives:
            life.dispose()

    # Fail-overs -------------------------------------------------------------------------------------------------------

    def remember(self) -> None: ...

    def went_back(self, _: None, state: State) -> None:
        """It is told that something is lost: every client asks again for all that it wants."""
        for program in self._programs:
            program.begin_again(state)
        for process in self.present():
            process.begin_again()

    # Coming and going -------------------------------------------------------------------------------------------------

    def _sit_down(self, seat: Seat) -> None:
        seat.lives += 1
        number = self._seats.index(seat)
        drift = self._conditions.faults.clock_drift
        if drift:
            self._conditions.hit("clock_drift")
        clock = NodeClock(self._dice.random() * 1e6, 1.0 + (2 * self._dice.random() - 1) * drift)
        clock.jump(self._scheduler.now_s, 0.0)
        seat.process = Process(
            self._surroundings,
            f"{seat.name}.{seat.lives}",
            dice=fork(self._dice),
            clock=clock,
            code=self.code,
            namespace=seat.namespace,
            task_queues=seat.task_queues,
            limits=seat.limits,
            programs=[each for each in self._programs if each.seat == number],
            on_end=lambda: self._stand_up(seat),
        )
        self._lives.append(seat.process)

    def _stand_up(self, seat: Seat) -> None:
        """The process has ended; after a while another one takes its place."""
        seat.process = None
        self._scheduler.bury()
        if self._is_needed():
            self._scheduler.at(self._scheduler.now_s + self._dice.random() * EMPTY_MAX_S, lambda: self._take_seat(seat))

    def _take_seat(self, seat: Seat) -> None:
        if seat.process is None and self._is_needed():
            self._sit_down(seat)

    def _is_needed(self) -> bool:
        return not (self._conditions.calm and self._all_closed())

    def _draw_limits(self) -> Limits:
        return Limits(
            concurrent_activities_max=self._dice.choice([1, 3, 1000]),
            cached_runs_max=self._dice.choice([1, 3, 1000]),
            lease_ms=self._dice.choice([2_000, 5_000]),
            verified_share=self._dice.choice([0.0, 0.5]),
            commands_max=self._dice.choice([1, 2, 100]),
        )

    def _toss(self) -> bool:
        return self._dice.random() < 0.5  # noqa: PLR2004 - heads or tails
