"""The fault matrix names what there is: no fault without a place where it is injected, no counter without a row."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import pledger.testing
from benchmarks.workloads import WORKLOADS
from pledger.testing.faults import DISK_KINDS, KINDS, SERVER_KINDS
from tests.faults.matrix import CHECKS, FAULTS, INVARIANTS, never_made
from tests.features import stale

HERE = Path(__file__).parent
TESTS = HERE.parent
TESTING = Path(pledger.testing.__file__).parent
#: What a violation is called stands where it is found: at a commit, and when all is over.
AT_A_COMMIT = re.compile(r'violated\(\s*"([^"]+)"')
IN_THE_END = re.compile(r'[(\[]f"([a-z][^":{]+): ')
#: Where it is said that one is made.
MADE = re.compile(r"\bchecks\(([^()]*)")
LOOK_IN_THE_END = (
    TESTING / "invariants.py",
    TESTING / "sqlite_ledger.py",
    *(TESTS / "reference" / name for name in ("shop.py", "cases.py", "publishing.py")),
)


def labels() -> set[str]:
    found = {name for path in TESTING.glob("*.py") for name in AT_A_COMMIT.findall(path.read_text())}
    return found | {name for path in LOOK_IN_THE_END for name in IN_THE_END.findall(path.read_text())}


def counted() -> set[str]:
    """The checks whose making is counted."""
    places = [*TESTING.glob("*.py"), *(TESTS / "reference").glob("*.py")]
    calls = [call for path in places for call in MADE.findall(path.read_text())]
    return {name for call in calls for name in re.findall(r'"([^"]+)"', call)}


def missing_tests(rows: dict[str, dict[str, Any]]) -> list[str]:
    found = []
    for row in rows.values():
        for named in row.get("tests", ()):
            path, _, name = named.partition("::")
            source = (TESTS / path).read_text() if (TESTS / path).is_file() else ""
            if not re.search(rf"^(async )?def {name}\(", source, re.MULTILINE):
                found.append(named)
    return found


def test_every_row_is_there() -> None:
    assert [*FAULTS] == [f"F{number}" for number in range(1, 26)]
    assert [*INVARIANTS] == [f"I{number}" for number in range(1, 23)]
    for row in FAULTS.values():
        assert row.keys() <= {"what", "drawn", "tests", "measured", "later", "missing"}
    for row in INVARIANTS.values():
        assert row.keys() <= {"what", "checks", "tests", "later", "missing"}


@pytest.mark.parametrize("name", [*FAULTS, *INVARIANTS])
def test_a_row_has_a_place_or_a_reason(name: str) -> None:
    row = FAULTS.get(name) or INVARIANTS[name]
    assert row["what"]
    assert any(row.get(field) for field in ("drawn", "checks", "tests", "later"))


def test_every_named_test_exists() -> None:
    assert missing_tests(FAULTS) == []
    assert missing_tests(INVARIANTS) == []


def test_every_drawn_fault_is_counted_and_every_counted_one_is_in_a_row() -> None:
    drawn = {name for row in FAULTS.values() for name in row.get("drawn", ())}
    assert drawn == {*KINDS, *DISK_KINDS, *SERVER_KINDS}


def test_every_check_is_made_and_every_made_one_is_in_a_row() -> None:
    # Of the simulated processes themselves, and no promise of the ledger's.
    assert labels() - CHECKS.keys() == {"errors are handled", "clients are not surprised"}
    assert CHECKS.keys() - labels() == set()
    assert counted() == CHECKS.keys(), "each is counted where it is made (pledger.testing.findings)"


def test_a_check_that_was_never_made_is_told() -> None:
    all_but_one = dict.fromkeys(CHECKS, 1) | {"timers never early": 0}
    assert never_made([all_but_one, {}]) == ["timers never early"]
    assert never_made([all_but_one, {"timers never early": 1}]) == []


def test_the_rows_of_what_exists_have_tests() -> None:
    """Only these wait as a whole."""
    rows = FAULTS | INVARIANTS
    waiting = {name for name, row in rows.items() if not {"drawn", "checks", "tests"} & row.keys()}
    assert waiting == {"I9"}


@pytest.mark.parametrize("name", [*FAULTS, *INVARIANTS])
def test_what_waits_waits_for_what_is_not_there(name: str) -> None:
    row = FAULTS.get(name) or INVARIANTS[name]
    assert bool(row.get("later")) == bool(row.get("missing"))
    assert stale(row.get("missing", [])) == [], "it is there: write the test, and take it out of `later`"


def test_every_named_workload_exists() -> None:
    named = {name for row in FAULTS.values() for name in row.get("measured", ())}
    assert named <= WORKLOADS.keys()


def test_a_name_that_is_not_there_is_found() -> None:
    assert missing_tests(
        {"F0": {"tests": ["faults/test_matrix.py::test_nothing_of_the_kind", "nowhere.py::test_a"]}}
    ) == [
        "faults/test_matrix.py::test_nothing_of_the_kind",
        "nowhere.py::test_a",
    ]
