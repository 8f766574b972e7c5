"""What a Markdown file outside docs/ links to exists. (The build of docs/ checks its own links, anchors included.)"""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
FILES = [*ROOT.glob("*.md"), *(ROOT / "tests").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]


def links_of(file: Path) -> Iterator[str]:
    for block in MarkdownIt().parse(file.read_text(encoding="utf-8")):
        for token in block.children or []:
            target = token.attrGet("href") or token.attrGet("src")
            if target:
                yield str(target)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_local_links_lead_somewhere(file: Path) -> None:
    local = [url.path for url in map(urlsplit, links_of(file)) if not url.scheme and not url.netloc and url.path]
    broken = [path for path in local if not (file.parent / unquote(path)).exists()]
    assert broken == []
