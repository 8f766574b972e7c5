"""Brings the figures of a run into the documentation, so that none there is typed by hand.

`python -m proof.publish build/proof/*.json`: those of several runs, when so many seeds take more than one.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from benchmarks.machine import ROOT
from proof import report
from proof.results import Proof, merge

PAGE: Final = ROOT / "docs/proof.md"
BEGIN: Final = "<!-- figures: written by make prove ARGS=--publish -->\n"
END: Final = "<!-- end of figures -->\n"


def publish(proof: Proof, page: Path = PAGE) -> Path:
    """Write what stands between the two marks of the page; the page."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{page} has lost its marks")
    page.write_text(f"{before}{BEGIN}\n{report.to_markdown(proof)}\n\n{END}{after}", encoding="utf-8")
    return page


if __name__ == "__main__":
    publish(merge(Proof.read(Path(name)) for name in sys.argv[1:]))
