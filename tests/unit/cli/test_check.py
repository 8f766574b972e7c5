"""`pledger check` from its words to its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pledger.cli import main

WORKFLOW = """\
import time
from pledger import workflow

raise SystemExit("it was imported")

@workflow.defn
async def fulfil():
    return time.time()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_finding_is_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "shop.py").write_text(WORKFLOW)
    assert main(["check"]) == 1
    told = capsys.readouterr()
    assert told.out == ("shop.py:8:12: time.time() in fulfil: its answer differs on replay. Instead: workflow.time()\n")
    assert told.err == "1 finding in 1 file\n"


def test_findings_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "shop.py").write_text(WORKFLOW)
    assert main(["check", "shop.py", ".", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {
        "ok": False,
        "files": 1,
        "findings": [
            {
                "file": "shop.py",
                "line": 8,
                "column": 12,
                "what": "time.time()",
                "reason": "its answer differs on replay",
                "remedy": "workflow.time()",
                "workflow": "fulfil",
            }
        ],
    }


def test_folders_are_searched_but_not_those_of_others(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for each in ("b/deep", "a", ".hidden", "env", "a/__pycache__", "node_modules"):
        (folder / each).mkdir(parents=True)
        (folder / each / "shop.py").write_text(WORKFLOW)
    (folder / "env" / "pyvenv.cfg").touch()
    assert main(["check"]) == 1
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == ["a/shop.py", "b/deep/shop.py"]


def test_nothing_found(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "plain.py").write_text("import time\ntime.time()\n")
    assert main(["check", str(folder)]) == 0
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "nothing found in 1 file\n")


@pytest.mark.parametrize("text", [b"def f(:\n", b"x = '\xff'\n", b"# coding: klingon\n", b"x = '\0'\n"])
def test_a_file_that_cannot_be_read_as_python_is_a_finding(
    folder: Path, capsys: pytest.CaptureFixture[str], text: bytes
) -> None:
    (folder / "odd.py").write_bytes(text)
    (folder / "shop.py").write_text(WORKFLOW)
    assert main(["check"]) == 1
    odd, shop = capsys.readouterr().out.splitlines()
    assert ": syntax error: " in odd
    assert shop.startswith("shop.py:8:12: ")


def test_the_encoding_that_a_file_declares(folder: Path) -> None:
    (folder / "shop.py").write_bytes("# coding: latin-1\nname = 'café'\n".encode("latin-1"))
    assert main(["check"]) == 0


def test_a_path_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "shop.py"]) == 2
    assert capsys.readouterr().err == "error: shop.py does not exist\n"


def test_waits_are_an_option(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "shop.py").write_text("from pledger import workflow\n\n@workflow.defn(owner='ada')\nasync def a(): ...\n")
    assert main(["check"]) == 0
    capsys.readouterr()
    assert main(["check", "--waits"]) == 1
    assert capsys.readouterr().out == (
        "shop.py:3:2: workflow a without deadline: nothing says when its runs must be over. "
        "Instead: deadline=timedelta(...)\n"
    )
