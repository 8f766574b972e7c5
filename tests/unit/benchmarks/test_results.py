"""From what was found to what is shown and kept."""

from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

from rich.console import Console

from benchmarks import plot, report
from benchmarks.figures import Figure
from benchmarks.ground import StoreName
from benchmarks.results import Calls, Measured, Results, Sample


def results(*, other_cores: float = 0.0, quick: bool = False, store: StoreName = "sqlite") -> Results:
    samples = [
        Sample({"steps_per_s": rate, "step_ms": 1000 / rate}, 10_000, 0.2, 0.1, other_cores, 2_000, 24_000)
        for rate in (10_000.0, 20_000.0, 16_000.0)
    ]
    measured = [Measured("W2", samples), Measured("W3", [], "run 'x' is blocked [0]")]
    machine = {"pledger": "1.0", "cores": "2"}
    return Results(datetime(2026, 11, 29, tzinfo=UTC), quick, machine, measured, [Calls("W2", 300, 200)], store)


def printed(found: Results) -> str:
    console = Console(file=StringIO(), width=160)
    report.print_report(console, found)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_the_table_has_median_spread_target_verdict_and_commits() -> None:
    rows = [" ".join(line.split()) for line in printed(results()).splitlines()]
    assert "W2 throughput 16,000 steps/s 10,000-20,000 ≥ 15,000 steps/s met" in rows
    assert "per step 0.062 ms 0.05-0.1 0.31" in rows


def test_each_store_has_its_own_targets() -> None:
    rows = [" ".join(line.split()) for line in printed(results(store="postgres")).splitlines()]
    assert "W2 throughput 16,000 steps/s 10,000-20,000 ≥ 10,000 steps/s met" in rows


def test_where_all_has_failed_nothing_is_drawn(tmp_path: Path) -> None:
    failed = results()
    failed.measured = [Measured("W3", [], "broken")]
    plot.draw(failed, [tmp_path / "none.svg"])
    assert not list(tmp_path.iterdir())


def test_a_failure_and_a_disturbed_machine_are_told() -> None:
    text = printed(results(other_cores=1.25))
    assert "W3 FAILED: run 'x' is blocked [0]" in text
    assert "NOT QUIET: other programs worked on this machine during W2 (1.25 cores)" in text
    assert "The machine was quiet." in printed(results())


def test_a_ratio_to_the_commit_is_not_judged_on_a_busy_machine() -> None:
    ratio, time = Figure("ratio", "", "commits", target=2), Figure("time", "", "s", target=2)
    busy, quiet = (
        Measured("W1", [Sample({"ratio": 1, "time": 1}, 10, 0.2, 0.1, other_cores, 1, 12)])
        for other_cores in (1.5, 0.1)
    )
    assert (busy.verdict(ratio), busy.verdict(time)) == ("disturbed", "met")
    assert quiet.verdict(ratio) == "met"


def test_calls_are_compared_with_what_was_written_down() -> None:
    assert "Function calls per step of W2: 300 (written down: 200, +50%)." in printed(results())


def test_a_quick_run_judges_nothing() -> None:
    text = printed(results(quick=True))
    assert " met " not in text
    assert "A quick run" in text


def test_results_come_back_from_their_file(tmp_path: Path) -> None:
    results().write(tmp_path / "results.json")
    assert Results.read(tmp_path / "results.json") == results()


def test_the_plot_is_the_same_for_the_same_figures(tmp_path: Path) -> None:
    plot.draw(results(), [tmp_path / "one.svg", tmp_path / "one.png"])
    plot.draw(results(), [tmp_path / "two.svg"])
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert (tmp_path / "one.png").stat().st_size > 0
