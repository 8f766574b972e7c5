"""Every Python block in README.md and docs/ is run as what its reader would make of it: a script in a folder.

The blocks of one page share a folder and run in order. A block with a title (```python title="app.py") is saved under
that name, so that a later one can import it. A block after the comment `<!-- not run: why -->` is only compiled.
"""

import ast
import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests import servers

ROOT = Path(__file__).parents[2]
PAGES = [page for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] if page.exists()]

#: An example that names this variable finds the URL of an empty ledger on PostgreSQL in it.
DATABASE = "SHOP_DATABASE"
#: An example that takes longer waits for something that does not come.
SECONDS_MAX = 60


@dataclass(frozen=True)
class Example:
    """line: 1-based, of the block's first line of code."""

    page: Path
    line: int
    source: str
    title: str
    is_run: bool

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def examples_of(page: Path) -> Iterator[Example]:
    comment = ""
    for token in MarkdownIt().parse(page.read_text(encoding="utf-8")):
        if token.type == "fence" and re.match(r"python\b", token.info) and token.map:
            line = token.map[0] + 2
            title = re.search(r'title="([^"]+)"', token.info)
            is_run = not comment.startswith("<!-- not run:")
            yield Example(page, line, token.content, title[1] if title else f"block_{line}.py", is_run)
        comment = token.content.strip() if token.type == "html_block" else ""


EXAMPLES = {page: found for page in PAGES if (found := list(examples_of(page)))}


def _run(script: Path, source: str) -> subprocess.CompletedProcess[str]:
    with servers.schema() if DATABASE in source else contextlib.nullcontext("") as url:
        return subprocess.run(
            [sys.executable, "-W", "error", script.name],
            cwd=script.parent,
            env={**os.environ, DATABASE: url},
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )


@pytest.mark.parametrize("page", EXAMPLES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path) -> None:
    for example in EXAMPLES[page]:
        script = tmp_path / example.title
        script.write_text(example.source, encoding="utf-8")
        if not example.is_run:
            compile(example.source, str(example), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            continue
        ended = _run(script, example.source)
        if ended.returncode:
            pytest.fail(f"{example} ended with {ended.returncode}\n{ended.stdout}{ended.stderr}", pytrace=False)
