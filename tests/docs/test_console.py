"""Every console block in README.md and docs/ with a `$` prompt does what the page says.

The blocks of one page share a folder with its titled Python blocks and run in order, each in a shell of its own. Every
command must succeed. What a block shows must be printed, in this order; numbers, durations, run ids and process ids
differ from one time to the next and are not compared, and a line `...` stands for any others. A block after the comment
`<!-- not run: why -->` is left alone.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

#: A block that takes longer waits for something that does not come.
SECONDS_MAX = 60


def blocks_of(page: Path) -> Iterator[tuple[int, str, str]]:
    """(line, info, content) of every block that is to be run or saved."""
    comment = ""
    for token in MarkdownIt().parse(page.read_text(encoding="utf-8")):
        if token.type == "fence" and token.map and not comment.startswith("<!-- not run:"):
            yield token.map[0] + 2, token.info, token.content
        comment = token.content.strip() if token.type == "html_block" else ""


def is_session(info: str, content: str) -> bool:
    return info.startswith("console") and content.startswith("$ ")


TOLD = [page for page in PAGES if any(is_session(info, content) for _, info, content in blocks_of(page))]


@pytest.mark.parametrize("page", TOLD, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_console_blocks_of_a_page_do_what_they_show(page: Path, tmp_path: Path) -> None:
    for line, info, content in blocks_of(page):
        title = re.search(r'title="([^"]+)"', info)
        if title:
            (tmp_path / title[1]).write_text(content, encoding="utf-8")
        if is_session(info, content):
            commands, shown = parts_of(content)
            printed = run(commands, tmp_path, f"{page.relative_to(ROOT)}:{line}")
            missing = first_missing(shown, printed)
            assert missing is None, f"{page.relative_to(ROOT)}:{line} does not print {missing!r} there, but\n{printed}"


def parts_of(content: str) -> tuple[str, list[str]]:
    """The commands as one script, and the lines that they are said to print."""
    commands, shown = [], []
    for line in content.splitlines():
        if line.startswith("$ "):
            commands.append(line.removeprefix("$ "))
        elif line.strip() and line.strip() != "...":
            shown.append(line)
    return "\n".join(commands), shown


def run(commands: str, folder: Path, where: str) -> str:
    """What the commands print, on stdout and stderr. What they leave in the background is killed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "120", "PYTHONWARNINGS": "error"}
    log = folder / "printed.log"
    with log.open("wb") as printed:
        shell = subprocess.Popen(
            ["bash", "-e", "-o", "pipefail", "-c", commands],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=printed,
            start_new_session=True,
        )
        try:
            status = shell.wait(SECONDS_MAX)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
    text = log.read_text(encoding="utf-8")
    if status:
        pytest.fail(f"{where} ended with {status}\n{text}", pytrace=False)
    return text


def first_missing(shown: list[str], printed: str) -> str | None:
    """The first shown line that is not printed after those before it, or None."""
    lines = iter([alike(line) for line in printed.splitlines()])
    return next((line for line in shown if alike(line) not in lines), None)


def alike(line: str) -> str:
    """The line without what differs from one time to the next."""
    line = re.sub(r"\b[0-9A-HJKMNP-TV-Z]{26}\b", "RUN", line)
    line = re.sub(r"\b\d+@\S+", "WORKER", line)
    line = re.sub(r"(\b\d[\d:.,-]*( ?(ms|s|min|h|d)\b)?\s*)+", "# ", line)
    return " ".join(line.split())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("started 19:22:32 (2.1 s ago)", "started 08:00:01 (943 ms ago)"),
        ("worker      5321@vm", "worker 17@elsewhere"),
        ("run  06H2HGJD4P1REVBFTD6HQMR9A4", "run  06H2HGMGMN7VDV259NT04CNPBG"),
        ("due 2026-12-13 19:22:49 (in 13 d 23 h)", "due 2027-01-02 00:00:00 (in 14 d)"),
    ],
)
def test_what_differs_each_time_is_not_compared(one: str, other: str) -> None:
    assert alike(one) == alike(other)


def test_a_line_that_is_not_printed_is_found() -> None:
    assert first_missing(["a", "c"], "a\nb\nc\n") is None
    assert first_missing(["c", "a"], "a\nb\nc\n") == "a"
