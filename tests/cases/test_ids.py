"""Every case is tested under its id or waits with a reason, and what waits is not tested meanwhile."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

from tests.features import stale

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
HERE = Path(__file__).parent
_TEST = re.compile(r"^\s*(?:async )?def test_([A-Z]{3})_(\d\d)_", re.MULTILINE)

CASES: list[dict[str, str]] = tomllib.loads((HERE / "ids.toml").read_text())["case"]
TABLE: dict[str, list[dict[str, Any]]] = tomllib.loads((HERE / "waiting.toml").read_text())
IDS = {each["id"] for each in CASES}
WAITING = Counter(each for row in TABLE["waiting"] for each in row["ids"])


def ids_in(source: str) -> set[str]:
    """Of the cases that its tests are named after."""
    return {f"{area}-{number}" for area, number in _TEST.findall(source)}


def ids_tested() -> set[str]:
    return {each for path in TESTS.rglob("test_*.py") for each in ids_in(path.read_text())}


def test_every_case_is_tested_or_waits() -> None:
    assert len(CASES) == len(IDS) == 57
    assert IDS - ids_tested() - WAITING.keys() == set(), "neither tested nor in waiting.toml"
    assert ids_tested() & WAITING.keys() == set(), "tested, and said to wait"
    assert ids_tested() - IDS == set(), "no such case"
    assert WAITING.keys() - IDS == set(), "no such case"
    assert {each for each, count in WAITING.items() if count > 1} == set()


def test_what_is_tested_in_part_or_otherwise_is_tested() -> None:
    rows = [*TABLE["part"], *TABLE["deviation"]]
    assert {each["id"] for each in rows} <= ids_tested()
    lines = Counter((each["id"], each["line"]) for each in rows)
    assert max(lines.values()) == 1


def test_every_row_says_why() -> None:
    fields = {
        "waiting": {"ids", "missing", "why"},
        "part": {"id", "line", "missing", "why"},
        "deviation": {"id", "line", "ours", "why", "documented"},
    }
    assert TABLE.keys() == fields.keys()
    for kind, rows in TABLE.items():
        for row in rows:
            assert row.keys() == fields[kind]
            assert all(row.values()), row
            if kind == "deviation":
                assert (ROOT / row["documented"]).is_file()


def test_what_waits_waits_for_what_is_not_there() -> None:
    for row in [*TABLE["waiting"], *TABLE["part"]]:
        assert stale(row["missing"].split(", ")) == [], f"it is there: test this, and take it out: {row}"


def test_ids_are_found_in_names_of_tests() -> None:
    """The look for them must be able to find some and to find none."""
    assert ids_in("async def test_RTY_01_a(): ...\n\nclass A:\n    def test_STO_04_b(self): ...") == {
        "RTY-01",
        "STO-04",
    }
    assert ids_in("def of_test_RTY_01_a(): ...\nRTY_02 = 'test_RTY_02_a'\n# def test_RTY_04_a(): ...") == set()
