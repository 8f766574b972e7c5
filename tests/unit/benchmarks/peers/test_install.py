"""What is installed where, without any network."""

import sys
from pathlib import Path

import pytest

from benchmarks.peers import counting, install
from benchmarks.peers.catalogue import Peer
from benchmarks.peers.runner import TaskError
from tests.unit.benchmarks.peers.environments import existing


def peer(*requirements: str, python: tuple[int, int] = (3, 11), npm: tuple[str, ...] = ()) -> Peer:
    return Peer("fake", "Fake", "fake", requirements, (), "json", "none", in_flight=1, python=python, npm=npm)


def test_an_environment_with_the_same_requirements_is_kept(tmp_path: Path) -> None:
    wanted = peer("no-such-distribution==1")
    folder = existing(tmp_path, wanted)
    said: list[str] = []
    found = install.install(wanted, tmp_path, said.append)
    assert said == []
    assert found.python == folder / "venv/bin/python"
    assert found.distributions == 0


def test_what_cannot_be_installed_is_said_in_a_line(tmp_path: Path) -> None:
    existing(tmp_path, peer("another==1"))
    with pytest.raises(install.InstallError, match=r"python ended with 1: .*No module named pip"):
        install.install(peer("no-such-distribution==1"), tmp_path, lambda _: None)
    assert not (tmp_path / "fake/installed.json").exists()


def test_a_python_that_nobody_has_is_said_in_a_line() -> None:
    with pytest.raises(install.InstallError, match=r"needs Python 3\.99 or newer, and none was found"):
        install.find_python((3, 99))


def test_our_own_python_will_do_where_it_is_new_enough() -> None:
    found = install.find_python((3, 11))
    assert Path(found).resolve() == Path(sys.executable).resolve()


def test_npm_packages_need_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    existing(tmp_path, peer())
    with pytest.raises(install.InstallError, match="comes from npm, which is not installed"):
        install._install_npm(("some@1",), tmp_path / "npm")


TABLE = """\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 84.53    0.000760           7       104           fdatasync
 15.47    0.000139           6        21         2 fsync
  0.00    0.000000           0         3         1 execve
------ ----------- ----------- --------- --------- ----------------
100.00    0.000899           7       128         3 total
"""


def test_a_table_of_strace_is_summed_up(tmp_path: Path) -> None:
    (tmp_path / "table").write_text(TABLE)
    assert counting.synced(tmp_path / "table") == 125


@pytest.mark.parametrize("text", [None, ""])
def test_no_table_is_no_count(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "table").write_text(text)
    with pytest.raises(TaskError, match="no table"):
        counting.synced(tmp_path / "table")
