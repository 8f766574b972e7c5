"""How many connections a client takes: stated, kept to, and told; and how many all clients of the process do."""

from __future__ import annotations

import threading
import weakref
from typing import Final

from pledger.errors import InternalError

#: Of one client with all workers on it: what writes, what reads for the engine, what reads long lists for people, and
#: what beats. Servers are sized by this number.
CONNECTIONS_MAX: Final = 4
#: Besides: the one that listens.
LISTENERS_MAX: Final = 1


class Quota:
    """Seats for connections, each for one purpose. Whoever is to connect takes a seat first, and gives it back once its
    connection is closed.

    A seat is of the purpose, not of the connection: one that was lost is replaced on the same seat.
    """

    def __init__(self, seats: int) -> None:
        self.seats = seats
        self._taken: dict[str, object] = {}
        with _all_lock:
            _all.add(self)

    @property
    def open(self) -> tuple[str, ...]:
        """What has a connection now, or is about to."""
        return tuple(self._taken)

    def take(self, purpose: str, who: object) -> None:
        """Raises InternalError where there is none left: a connection more would take other processes'."""
        if purpose not in self._taken and len(self._taken) < self.seats:
            self._taken[purpose] = who
        if self._taken.get(purpose) is not who:
            raise InternalError(
                f"a connection to the server for {purpose!r} is more than the {self.seats} that a client takes "
                f"({', '.join(self._taken)}). Please report this."
            )

    def give(self, purpose: str, who: object) -> None:
        if self._taken.get(purpose) is who:
            del self._taken[purpose]


#: Of all clients of the process, whatever loops and threads they are of.
_all: weakref.WeakSet[Quota] = weakref.WeakSet()
_all_lock: Final = threading.Lock()


def of_process() -> int:
    """How many connections all clients of this process have, those that listen among them."""
    with _all_lock:
        return sum(len(each.open) for each in _all)
