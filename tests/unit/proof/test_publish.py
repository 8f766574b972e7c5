"""The page of the proof: its figures come from a run, and what it names is there."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from proof import publish, simulations
from proof.results import Explored, Planted, Proof, Real, Replayed, Simulated, Stage, Violation, merge
from tests.faults.matrix import CHECKS
from tests.simulation.reverts.every import EVERY

ROOT = Path(__file__).parents[3]
PAGE = publish.PAGE.read_text(encoding="utf-8")
TESTS = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)))
PLANTED = sorted(set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", PAGE)))


def proof(violations: list[Violation] | None = None) -> Proof:
    simulated = Simulated("memory", 0, 600, 4.5, 2_000_000, 3_600, {"kill": 12_345}, [], {"timers never early": 67_890})
    return Proof(
        datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
        {"commit": "abc"},
        [
            Stage("memory", 61.0, violations or [], simulated=[simulated]),
            Stage("planted", 2.0, [], planted=[Planted("no_fence", "memory", 7, "one writer per run")]),
            Stage("models", 3.0, [], explored=[Explored("a model", "a guard", 1_234, 9, 5)]),
            Stage("kills", 0.0, [], real=[Real("kills", {"kills": 5_678})]),
            Stage("determinism", 4.0, [], replayed=[Replayed("3.12", 30, 500, 3)]),
        ],
    )


def test_only_what_is_between_the_marks_changes(tmp_path: Path) -> None:
    page = tmp_path / "proof.md"
    page.write_text(f"before\n{publish.BEGIN}of an earlier run\n{publish.END}after\n", encoding="utf-8")
    publish.publish(proof(), page)
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "of an earlier run" not in text
    for told in ("02 January 2026", "1 min 10 s", "12,345", "5,678", "no fence", "1,234", "3.12", "| pause | NEVER |"):
        assert told in text
    assert "| I10 | timers never early | 67,890 |" in text
    assert "| I10 | timers fire once |  |" in text


def test_a_violation_is_published_with_its_command(tmp_path: Path) -> None:
    page = tmp_path / "proof.md"
    page.write_text(publish.BEGIN + publish.END, encoding="utf-8")
    publish.publish(proof([Violation("seed 17: timers never early", "make again")]), page)
    assert "VIOLATED: seed 17: timers never early; again: `make again`" in page.read_text(encoding="utf-8")


def test_a_page_without_marks_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "proof.md"
    page.write_text("nothing", encoding="utf-8")
    with pytest.raises(ValueError, match="marks"):
        publish.publish(proof(), page)
    assert page.read_text(encoding="utf-8") == "nothing"


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    written = proof()
    written.write(tmp_path / "proof.json")
    assert Proof.read(tmp_path / "proof.json") == written


def part(first: int, hits: dict[str, int], missed: list[str], commit: str = "abc") -> Proof:
    simulated = Simulated("memory", first, 100, 1.5, 10, 20, hits, missed, {"no run blocks": 2})
    violations = [Violation(f"seed {first}", "again")] if first else []
    stages = [Stage("memory", 5.0, violations, simulated=[simulated]), Stage("kills", first, [])]
    return Proof(datetime(2026, 1, 2, 3 + first // 100, tzinfo=UTC), {"commit": commit}, stages)


def test_runs_whose_seeds_follow_each_other_are_one() -> None:
    one, other = part(0, {"kill": 2, "pause": 0}, ["pause", "cut_off"]), part(100, {"kill": 3, "pause": 1}, ["cut_off"])
    whole = merge([other, one])
    memory, kills = whole.stages
    assert memory.simulated == [
        Simulated("memory", 0, 200, 3.0, 20, 40, {"kill": 5, "pause": 1}, ["cut_off"], {"no run blocks": 4})
    ]
    assert (memory.seconds, memory.violations) == (10.0, other.stages[0].violations)
    assert kills.seconds == 100  # the newest counts
    assert whole.started == one.started


def test_a_check_that_was_never_made_breaks_the_proof() -> None:
    made = dict.fromkeys(CHECKS, 1)
    few = [Simulated(store, 0, 500, 1.0, 1, 1, {}, [], {}) for store in ("memory", "sqlite")]
    assert simulations.unchecked(few) == [], "not every store was simulated"
    whole = [*few, Simulated("postgres", 0, 500, 1.0, 1, 1, {}, [], made | {"told is true": 0})]
    [violation] = simulations.unchecked(whole)
    assert violation.what == "the check 'told is true' was never made"


def test_seeds_left_out_or_counted_twice_and_other_code_are_refused() -> None:
    for first in (0, 50, 200):
        with pytest.raises(ValueError, match="do not follow"):
            merge([part(0, {}, []), part(first, {}, [])])
    with pytest.raises(ValueError, match="different code"):
        merge([part(0, {}, []), part(100, {}, [], commit="def")])


@pytest.mark.parametrize(("file", "test"), TESTS)
def test_a_test_that_the_page_names_is_there(file: str, test: str) -> None:
    assert f"def {test}" in (ROOT / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_that_the_page_names_is_there(name: str) -> None:
    assert name in {revert.name for revert in EVERY}
