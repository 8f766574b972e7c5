"""What becomes of a simulated process's steps on the disk: drawn, at the rates of the faults of the moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from pledger.testing.dice import fork
from pledger.testing.disk_vfs import Failure, Step

if TYPE_CHECKING:
    from pledger.testing.process import Process

#: How a write, or a sync, goes wrong when it does.
_WRITE_FAILURES: Final[tuple[Failure, ...]] = ("error", "short")
_SYNC_FAILURES: Final[tuple[Failure, ...]] = ("error", "lost")


class Room(Protocol):
    """is_full: whether no file can grow. cut_power: take it from everybody."""

    is_full: bool

    def cut_power(self, kind: str) -> None: ...


class DiskWeather:
    """One process's."""

    def __init__(self, process: Process, room: Room) -> None:
        self._process = process
        self._room = room
        self._dice = fork(process.dice)

    def draw(self) -> float:
        return self._dice.random()

    def meet(self, step: Step, name: str) -> Failure | None:
        faults = self._process.surroundings.faults()
        draw = self._dice.random
        match step:
            case "open":
                return self._hit("disk_open_error", name, "error") if draw() < faults.disk_open_error else None
            case "read":
                return self._hit("disk_read_error", name, "error") if draw() < faults.disk_read_error else None
            case "sync" | "write" | "grow":
                if draw() < faults.kill_in_write:
                    self._process.kill("kill_in_write")
                    return "death"
                if draw() < faults.power_loss_in_write:
                    self._room.cut_power("power_loss_in_write")
                    return "death"
            case _:
                pass
        if step == "grow" and self._room.is_full:
            return self._hit("disk_full", name, "full")
        if step == "sync":
            if draw() < faults.disk_sync_error:
                failure = self._one_of(_SYNC_FAILURES)
                return self._hit("disk_sync_lost" if failure == "lost" else "disk_sync_error", name, failure)
        elif draw() < faults.disk_write_error:
            failure = "error" if step in {"truncate", "delete"} else self._one_of(_WRITE_FAILURES)
            return self._hit("disk_short_write" if failure == "short" else "disk_write_error", name, failure)
        return None

    def _one_of(self, failures: tuple[Failure, ...]) -> Failure:
        return failures[int(self._dice.random() * len(failures))]

    def _hit(self, kind: str, name: str, failure: Failure) -> Failure:
        self._process.surroundings.hit(kind)
        self._process.note(f"{kind}: {name.rpartition('/')[2]}")
        return failure
