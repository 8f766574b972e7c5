"""The exit codes are a promise: every error has one, every one is documented."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pledger import errors
from pledger.cli.exits import MEANINGS, Exit, NoLedgerError, WaitTimeoutError, exit_of


def subclasses(cls: type[errors.PledgerError]) -> Iterator[type[errors.PledgerError]]:
    yield cls
    for each in cls.__subclasses__():
        yield from subclasses(each)


PAGE = Path(__file__).parents[3] / "docs" / "cli.md"


def test_every_code_is_documented() -> None:
    assert set(MEANINGS) == set(Exit)
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert {int(code): meaning for code, meaning in rows} == MEANINGS


@pytest.mark.parametrize("cls", sorted(set(subclasses(errors.PledgerError)), key=lambda each: each.__name__))
def test_every_error_ends_a_command_with_a_code_of_its_own_kind(cls: type[errors.PledgerError]) -> None:
    code = exit_of(cls.__new__(cls))
    assert code not in (Exit.OK, Exit.INTERRUPTED)
    assert (code is Exit.BUG) == issubclass(cls, errors.InternalError)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.WorkflowFailedError("x"), 1),
        (errors.NondeterminismError("x"), 1),
        (errors.QueryFailedError("x"), 1),
        (errors.UsageError("x"), 2),
        (errors.PayloadTooLargeError("x"), 2),
        (errors.InvalidFilterError("x"), 2),
        (errors.InvalidPolicyError("x"), 2),
        (errors.WorkflowNotFoundError("x"), 3),
        (NoLedgerError("x"), 3),
        (errors.NoWorkerError("x"), 4),
        (WaitTimeoutError("x"), 4),
        (errors.StoreUnavailableError("x"), 5),
        (errors.SchemaVersionError("x"), 5),
        (errors.CorruptHistoryError("x"), 5),
        (errors.RunBlockedError("x"), 6),
        (errors.WorkflowAlreadyStartedError("x"), 7),
        (errors.RunClosedError("x"), 7),
        (errors.InboxFullError("x"), 7),
        (errors.InternalError("x"), 70),
    ],
)
def test_codes_are_never_renumbered(error: errors.PledgerError, code: int) -> None:
    assert exit_of(error) == code
