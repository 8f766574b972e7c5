"""The exit codes: what a script learns from a command without reading its output. All of them are here.

`pledger --help` prints this table, so its words are for users.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from pledger import errors


class Exit(IntEnum):
    """How a command ended. Never renumbered: scripts depend on it."""

    OK = 0
    BAD_NEWS = 1
    USAGE = 2
    NOT_FOUND = 3
    NO_ANSWER = 4
    STORE = 5
    BLOCKED = 6
    REFUSED = 7
    BUG = 70  # EX_SOFTWARE of sysexits.h
    INTERRUPTED = 130  # as shells report a SIGINT


MEANINGS: Final[dict[Exit, str]] = {
    Exit.OK: "done",
    Exit.BAD_NEWS: "bad news: the run failed, a replay differs, doctor or check objects",
    Exit.USAGE: "the command line, or the code it names, is wrong",
    Exit.NOT_FOUND: "no such run, or no ledger at that place",
    Exit.NO_ANSWER: "no worker answered, or --timeout passed; nothing is lost",
    Exit.STORE: "the ledger is locked, full, not writable, damaged or newer",
    Exit.BLOCKED: "a bug in workflow code holds the run; its state is intact",
    Exit.REFUSED: "the run is closed, or its id belongs to another input",
    Exit.BUG: "a bug of Pledger's own",
    Exit.INTERRUPTED: "interrupted",
}


class NoLedgerError(errors.UsageError):
    """There is no ledger where the command was told to look."""


class WaitTimeoutError(errors.PledgerError):
    """--timeout passed. What was waited for goes on."""


#: The first class that fits decides.
_BY_CLASS: Final[tuple[tuple[type[errors.PledgerError], Exit], ...]] = (
    (NoLedgerError, Exit.NOT_FOUND),
    (errors.WorkflowNotFoundError, Exit.NOT_FOUND),
    (errors.NoLongerKeptError, Exit.NOT_FOUND),
    (errors.WorkflowAlreadyStartedError, Exit.REFUSED),
    (errors.RunClosedError, Exit.REFUSED),
    (errors.InboxFullError, Exit.REFUSED),
    (errors.UpdateConflictError, Exit.REFUSED),
    (errors.UpdateRejectedError, Exit.REFUSED),
    (errors.QueryFailedError, Exit.BAD_NEWS),
    (errors.UsageError, Exit.USAGE),
    (errors.NoWorkerError, Exit.NO_ANSWER),
    (WaitTimeoutError, Exit.NO_ANSWER),
    (errors.StoreError, Exit.STORE),
    (errors.RunBlockedError, Exit.BLOCKED),
    (errors.InternalError, Exit.BUG),
)


def exit_of(error: errors.PledgerError) -> Exit:
    """The exit code of a command that ended with the error. What the ledger reports of a run's own end is bad news."""
    return next((code for cls, code in _BY_CLASS if isinstance(error, cls)), Exit.BAD_NEWS)
