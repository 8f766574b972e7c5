"""Brings table and plot of a run into the documentation, so that no figure there is typed by hand."""

from pathlib import Path
from typing import Final

from benchmarks import plot, report
from benchmarks.machine import ROOT
from benchmarks.results import Results

_PAGE: Final = ROOT / "docs/benchmarks.md"
_BEGIN: Final = "<!-- results: written by make bench ARGS=--publish -->\n"
_END: Final = "<!-- end of results -->\n"


def publish(results: Results) -> Path:
    """Write what stands between the two marks of the page; the page."""
    page = _PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    text = report.to_markdown(results)
    _PAGE.write_text(f"{before}{_BEGIN}\n{text}\n\n{_END}{after}", encoding="utf-8")
    plot.draw(results, [_PAGE.with_suffix(".svg")])
    return _PAGE
