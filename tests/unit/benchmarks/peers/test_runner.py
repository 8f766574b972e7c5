"""The harness, with a fake engine in real processes."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmarks import processes
from benchmarks.peers import runner
from benchmarks.peers.catalogue import FIGURES, Peer
from benchmarks.peers.install import Installed
from benchmarks.peers.runner import Harness, Task, TaskError

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the comparison runs on Linux")

INSTALLED = Installed(Path(sys.executable), "3.11", {"fake": "1.0"}, 3, 4.5)


def fake(variant: str = "", sleep_s: float = 3600.0) -> Peer:
    return Peer("fake", "Fake", "fake", (), (), "json", "none", in_flight=4, variant=variant, sleep_s=sleep_s)


def harness(
    place: Path, *, limit_s: float = 120.0, said: list[str] | None = None, slept_s: list[float] | None = None
) -> Harness:
    say, sleep = ([] if said is None else said).append, ([] if slept_s is None else slept_s).append
    return Harness(place, limit_s, say, adapters="tests.unit.benchmarks.peers.adapters", sleep=sleep)


@pytest.mark.parametrize("workload", ["W1", "W2", "W3", "W4", "W5", "W7", "W8", "W10", "W11", "W12", "W13"])
def test_every_figure_that_the_report_shows_is_measured(workload: str, tmp_path: Path) -> None:
    values = runner.measure(fake(), workload, INSTALLED, harness(tmp_path), size=2 if workload == "W8" else 20)
    missing = {figure.key for figure in FIGURES if figure.workload == workload} - set(values)
    assert not missing
    assert list(tmp_path.glob("store-*")) == []


def test_what_a_noisy_tenant_does_to_a_quiet_one_is_measured_beside_it(tmp_path: Path) -> None:
    values = runner.measure(fake(), "W12", INSTALLED, harness(tmp_path), size=5)
    assert (values["alone_p99_ms"], values["beside_p99_ms"], values["ratio"]) == (1.0, 5.0, 5.0)


def test_a_timer_that_fires_too_early_is_no_result(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="too early"):
        runner.measure(fake("early"), "W11", INSTALLED, harness(tmp_path), size=5)


def test_an_other_process_that_does_not_come_up_gives_its_reason(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="the other process: ValueError: it hears nothing"):
        runner.measure(fake("deaf"), "W10", INSTALLED, harness(tmp_path), size=5)


def test_footprint_is_that_of_the_installation(tmp_path: Path) -> None:
    values = runner.measure(fake(), "W8", INSTALLED, harness(tmp_path), size=1)
    assert (values["installed_mb"], values["distributions"]) == (4.5, 3)


def test_sleepers_of_a_killed_process_are_found_and_finished_by_the_next(tmp_path: Path) -> None:
    said: list[str] = []
    slept_s: list[float] = []
    values = runner.measure(fake(), "W6", INSTALLED, harness(tmp_path, said=said, slept_s=slept_s), size=5)
    assert set(values) == {"sleeper_ms", "boot_s"}
    assert said.index("kill -9") < said.index("recovering")
    # Until the timer of the last of them is due, and no longer.
    assert len(slept_s) == 1
    assert 600 < slept_s[0] <= 901


def test_sleepers_that_took_longer_to_start_than_they_sleep_are_no_result(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="longer than the first of them sleeps"):
        runner.measure(fake(sleep_s=0.0), "W6", INSTALLED, harness(tmp_path), size=5)


@pytest.mark.parametrize(
    ("variant", "reason"),
    [("breaks", "ValueError: it is broken"), ("dies", "its process ended with 3 and said nothing")],
)
def test_an_engine_that_fails_gives_its_reason(variant: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=reason):
        runner.measure(fake(variant), "W1", INSTALLED, harness(tmp_path), size=5)


def test_an_engine_that_hangs_is_ended_at_its_limit(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"not done in 0\.5 s"):
        runner.measure(fake("hangs"), "W1", INSTALLED, harness(tmp_path, limit_s=0.5), size=5)


def test_with_an_engine_at_its_limit_end_all_that_it_started(tmp_path: Path) -> None:
    place = harness(tmp_path)
    (tmp_path / "store").mkdir()
    asked = runner.request(fake("serves"), "begin", place, tmp_path / "store", 5)
    with Task(asked, INSTALLED.python, place) as task:
        task.wait_for("said", "up")
        server = int((tmp_path / "store/server").read_text())
        task._stop()
        with pytest.raises(TaskError, match="not done in 120 s"):
            task.wait_for("never said")
        assert not processes.is_alive(server)


def test_a_server_that_outlives_its_engine_is_ended(tmp_path: Path) -> None:
    place = harness(tmp_path)
    (tmp_path / "store").mkdir()
    asked = runner.request(fake("serves"), "first", place, tmp_path / "store", 1)
    with Task(asked, INSTALLED.python, place) as task:
        task.wait_for("values")
        server = int((tmp_path / "store/server").read_text())
        assert processes.is_alive(server)
    assert not processes.is_alive(server)


def test_only_who_carries_the_token_is_found() -> None:
    assert processes.marked("nobody has this") == []


def test_a_tree_has_its_root_and_uses_memory_and_time() -> None:
    assert os.getpid() in processes.tree([os.getppid()])
    assert processes.pss_mb([os.getpid()]) > 1
    assert processes.cpu_s([os.getpid()]) > 0


def test_ports_are_all_different() -> None:
    assert len(set(runner.free_ports(4))) == 4


def test_processes_do_not_inherit_what_a_shell_says_to_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shell: Mapping[str, str] = {"PYTHONPATH": "/elsewhere", "PYTHONDONTWRITEBYTECODE": "1"}
    for name, value in shell.items():
        monkeypatch.setenv(name, value)
    assert not shell.keys() & runner.process_environment(tmp_path).keys()
