"""From what was found to what is shown and kept."""

from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import publish
from benchmarks.peers import plot, report
from benchmarks.peers.__main__ import _engines
from benchmarks.peers.catalogue import FIGURES, PEERS, SIZES, Compared, Peer
from benchmarks.peers.results import Comparison, Measured, Terms


def comparison(*, other_cores: float = 0.0) -> Comparison:
    def samples(key: str, *values: float) -> list[dict[str, float]]:
        return [{key: value, "other_cores": other_cores} for value in values]

    terms = [
        Terms("pledger", {"pledger": "1.0"}, "3.11", {"fsyncs": 1.0}, "by strace"),
        Terms("restate", {"@restatedev/restate-server": "1.7"}, "3.11", {"fsyncs": 2.0}, "by strace"),
        Terms("dura", {"dura": "1.3"}, "3.13", counted="not counted: strace is not installed"),
        Terms("temporal", failure="pip ended with 1: no such version"),
    ]
    measured = [
        Measured("pledger", "W1", 100, samples("step_ms", 0.5, 0.4, 9.0)),
        Measured("restate", "W1", 100, samples("step_ms", 2.0, 1.0, 1.5)),
        Measured("dura", "W1", 30, samples("step_ms", 1.0), "not done in 300 s"),
        Measured("temporal", "W1", 30, [], "not installed"),
        Measured("pledger", "W2", 2_000, samples("steps_per_s", 10_000)),
        Measured("restate", "W2", 500, samples("steps_per_s", 20_000)),
    ]
    return Comparison(datetime(2026, 11, 29, tzinfo=UTC), False, 3, {"pledger": "1.0"}, terms, measured)


def printed(found: Comparison) -> list[str]:
    console = Console(file=StringIO(), width=200)
    report.print_report(console, found)
    assert isinstance(console.file, StringIO)
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines()]


def test_a_row_has_medians_and_how_many_times_worse_than_pledger() -> None:
    rows = printed(comparison())
    assert "W1 10 steps one after another, p50 per step, ms 0.5 1.5 (x3) - -" in rows
    assert "W2 many workflows at a time, steps/s 10,000 20,000 (x0.5) - -" in rows


def test_terms_show_versions_durability_and_what_a_step_costs() -> None:
    [row] = [line for line in printed(comparison()) if line.startswith("Restate restate-server")]
    assert row == "Restate restate-server 1.7 3.11 RocksDB log, synced (default) 2 fsyncs by strace"
    assert any("not counted: strace is not installed" in line for line in printed(comparison()))


def test_who_is_not_there_or_failed_is_told_with_the_reason_and_never_with_a_figure() -> None:
    lines = printed(comparison())
    assert "Temporal dev server could not be installed: pip ended with 1: no such version." in lines
    assert "W1 of dura: not done in 300 s." in lines
    found = comparison()
    assert all(found.median("dura", figure) is None for figure in FIGURES)


def test_smaller_sizes_and_a_busy_machine_are_told() -> None:
    lines = printed(comparison(other_cores=1.5))
    assert "Smaller sizes, since the usual ones take many minutes: W1 dura 30, W2 Restate 500." in lines
    assert any(line.startswith("NOT QUIET: other programs worked on this machine during W1, W2") for line in lines)
    assert "The machine was quiet." in printed(comparison())


@pytest.mark.parametrize(("more_is_better", "times"), [(False, 4.0), (True, 0.25)])
def test_worse_is_more_time_or_less_throughput(more_is_better: bool, times: float) -> None:
    figure = Compared("W1", "key", "", "", more_is_better=more_is_better)
    assert figure.times_worse(8, 2) == times
    assert figure.times_worse(0, 2) is None


def test_what_is_kept_is_read_again(tmp_path: Path) -> None:
    found = comparison()
    found.write(tmp_path / "found.json")
    assert Comparison.read(tmp_path / "found.json") == found


def later(*rows: Measured) -> Comparison:
    terms = [Terms("pledger", {"pledger": "2.0"}), Terms("pledger-postgres"), Terms("dbos-postgres")]
    return Comparison(datetime(2026, 12, 1, tzinfo=UTC), False, 5, {"pledger": "2.0"}, terms, list(rows))


def test_a_run_of_some_workloads_leaves_the_others_as_they_were_published() -> None:
    run = later(Measured("pledger", "W1", 100, [{"step_ms": 0.25}]), Measured("pledger", "W10", 200, []))
    merged = run.over(comparison())
    assert [(each.peer, each.workload) for each in merged.measured] == [
        ("pledger", "W1"),
        ("pledger", "W2"),
        ("restate", "W2"),
        ("pledger", "W10"),
    ]
    assert [each.peer for each in merged.terms] == [
        *("pledger", "pledger-postgres", "dbos-postgres", "restate", "dura", "temporal")
    ]
    assert merged.terms[0].versions == {"pledger": "2.0"}
    lines = report.to_markdown(merged).splitlines()
    assert lines[1] == "W2: run of 29 November 2026, 00:00 UTC, medians of 3, commit ."
    # What is compared was measured in one run.
    assert "- W1, W10 of Restate: not in that run." in lines
    again = later(Measured("pledger", "W10", 200, [])).over(merged)
    assert [(each.started.day, each.workloads) for each in again.earlier] == [(29, ["W2"]), (1, ["W1"])]


def test_who_is_on_postgresql_is_compared_with_pledger_there() -> None:
    figure = next(each for each in FIGURES if each.key == "activities_per_s")
    rows = [
        Measured(peer, "W10", 200, [{"activities_per_s": value}])
        for peer, value in (("pledger", 1_000), ("pledger-postgres", 500), ("dbos-postgres", 100))
    ]
    found = later(*rows)
    assert [found.times_worse(peer, figure) for peer in ("pledger-postgres", "dbos-postgres")] == [2.0, 5.0]
    assert later(rows[0], rows[2]).times_worse("dbos-postgres", figure) == 10.0


def test_what_an_engine_has_not_is_said_in_its_cell() -> None:
    found = comparison()
    found.measured[2].failure = "no such feature: it has no steps"
    assert "W1 10 steps one after another, p50 per step, ms 0.5 1.5 (x3) no such feature -" in printed(found)
    assert "W1 of dura: no such feature: it has no steps." in printed(found)


@pytest.mark.parametrize(
    ("only", "names"),
    [
        ("dbos", ["pledger", "pledger-postgres", "dbos-sqlite", "dbos-postgres"]),
        ("dbos-sqlite", ["pledger", "dbos-sqlite"]),
        ("temporal,dura", ["pledger", "dura", "temporal"]),
        ("", list(PEERS)),
    ],
)
def test_an_engine_is_named_by_itself_or_by_one_of_its_settings(only: str, names: list[str]) -> None:
    assert _engines(only) == names


def test_the_plot_is_the_same_for_the_same_figures(tmp_path: Path) -> None:
    first, second = tmp_path / "first.svg", tmp_path / "second.svg"
    plot.draw(comparison(), [first, second])
    assert first.read_bytes() == second.read_bytes()
    assert "Restate" in first.read_text()


def test_markdown_has_the_tables_and_all_notes() -> None:
    text = report.to_markdown(comparison())
    rows = [line for line in text.splitlines() if line.startswith("|")]
    columns = [row.count("|") for row in rows]
    assert columns[:6] == [7] * 6
    assert set(columns[6:]) == {7}
    assert "- W1 of dura: not done in 300 s." in text


def test_a_section_of_the_page_is_replaced_and_nothing_else() -> None:
    page = publish._PAGE.read_text()
    written = publish.replaced(page, "peers", "NEW")
    begin, end = publish._MARKS["peers"]
    assert f"{begin}\nNEW\n\n{end}" in written
    assert publish.replaced(written, "peers", "NEW") == written
    assert written.partition(begin)[0] == page.partition(begin)[0]


@pytest.mark.parametrize("peer", PEERS.values(), ids=PEERS)
def test_every_engine_has_an_adapter_and_sizes_that_make_sense(peer: Peer) -> None:
    folder = Path(report.__file__).parent / "rivals"
    assert (folder / f"{peer.adapter}.py").exists()
    for workload in SIZES:
        # The tenths of W7 must have steps.
        assert peer.size(workload, quick=True) >= (10 if workload == "W7" else 1)
        assert peer.size(workload, quick=False) <= SIZES[workload]
