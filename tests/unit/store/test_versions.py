"""Which code may work with which schema: what a migration says, and what follows."""

from __future__ import annotations

import pytest

from pledger.errors import SchemaVersionError
from pledger.store.sqlfiles import load_migrations
from pledger.store.versions import check_version, compatible_from

FIRST = "-- compatible-from: 1\nCREATE TABLE a (x)"
ADDS = "-- What it is for.\n--\n-- compatible-from: 1\nCREATE TABLE b (x)"
SAYS_NOTHING = "CREATE TABLE c (x)"
TAKES_AWAY = "-- compatible-from: 3\nDROP TABLE a"


@pytest.mark.parametrize(
    ("steps", "oldest"),
    [
        ([], 0),
        ([FIRST], 1),
        ([FIRST, ADDS], 1),
        ([FIRST, SAYS_NOTHING], 2),
        ([FIRST, ADDS, TAKES_AWAY], 3),
        ([FIRST, ADDS, TAKES_AWAY, ADDS], 3),  # what one takes away no later one gives back
    ],
)
def test_the_oldest_code_that_can_live_with_a_schema(steps: list[str], oldest: int) -> None:
    assert compatible_from(steps) == oldest


@pytest.mark.parametrize(("version", "oldest"), [(0, None), (1, None), (3, 1), (3, 3), (4, 3), (9, 1)])
def test_a_schema_that_this_code_can_live_with(version: int, oldest: int | None) -> None:
    check_version(version, oldest, 3, place="here", elsewhere="open another file")


@pytest.mark.parametrize("oldest", [4, 5, None])
def test_one_that_it_cannot_live_with(oldest: int | None) -> None:
    with pytest.raises(SchemaVersionError, match=r"here has schema version 5; .* up to 3, .*, or open another file\."):
        check_version(5, oldest, 3, place="here", elsewhere="open another file")


def test_every_migration_says_it_and_both_stores_say_the_same() -> None:
    steps = {store: load_migrations(f"pledger.store.{store}") for store in ("sqlite", "postgres")}
    assert len(steps["sqlite"]) == len(steps["postgres"])
    for number, each in enumerate(zip(*steps.values(), strict=True), 1):
        for step in each:
            assert "\n-- compatible-from: " in step, f"migration {number} has to say what old code makes of it"
        assert len({compatible_from([step]) for step in each}) == 1, number
