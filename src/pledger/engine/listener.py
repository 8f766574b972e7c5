"""Who wants to know what becomes of a worker's runs: the connection (waiting clients), the intake, verification."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pledger.engine.port.records import RunStatus
    from pledger.history.events import Command


class Listener(Protocol):
    def run_born(self, run_key: int) -> None:
        """A run has started here, and is known here from now on."""
        ...

    def run_closed(
        self, run_key: int, status: RunStatus, command: Command | None, *, concerns_others: bool = False
    ) -> None:
        """A run that was here has ended. command: the last of its code, None where something else ended it.
        concerns_others: other runs have mail from it, or are to be seen to."""
        ...

    def run_continued(self, task_queue: str) -> None:
        """A run has ended here for a successor, which waits for a worker of that queue."""
        ...

    def run_changed(self, run_key: int) -> None:
        """A run was blocked, or was ended from outside: whoever waits for it looks again."""
        ...

    def run_released(self, due_ms: int | None) -> None:
        """A run was handed back. due_ms: when it is to be claimed, None when a message has to come first."""
        ...

    def task_queued(self, due_ms: int, task_queue: str) -> None:
        """An activity waits in a queue, and may start then."""
        ...

    def attempts_ended(self) -> None:
        """Attempts that may have had slots are over."""
        ...

    def recorded_elsewhere(self, run_key: int, task_queue: str) -> None:
        """An outcome was recorded for a run that is not here."""
        ...

    def posted(self, run_key: int) -> None:
        """A transition of the run did something to other runs: they, and it, have mail."""
        ...

    def published(self, chain_key: int) -> None:
        """A run of the chain, or an attempt of one, has published something."""
        ...

    def in_doubt(self) -> None:
        """A run may have been born here without anybody knowing."""
        ...
