"""The table of decisions has each of them, under its own title, in order."""

import re
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs/adr"


def test_the_table_has_every_decision() -> None:
    rows = re.findall(
        r"^\| \[(\d{4})\]\((\S+)\) \| (.+?) \| (.+?) \|$", (FOLDER / "README.md").read_text(), re.MULTILINE
    )
    files = sorted(FOLDER.glob("[0-9]*.md"))
    assert [file for _, file, _, _ in rows] == [file.name for file in files]
    for (number, _, title, status), file in zip(rows, files, strict=True):
        heading, _, said, *_ = file.read_text(encoding="utf-8").splitlines()
        assert (heading, said) == (f"# {number}: {title}", f"Status: {status}")
