"""Brings tables and plots of a run into the documentation, so that no figure there is typed by hand."""

from pathlib import Path
from typing import Final

from benchmarks import plot, report
from benchmarks.machine import ROOT
from benchmarks.results import Results

_PAGE: Final = ROOT / "docs/benchmarks.md"

#: Marks around what is written, by section.
_MARKS: Final = {
    "results": ("<!-- results: written by make bench ARGS=--publish -->\n", "<!-- end of results -->\n"),
    "postgres": (
        "<!-- results on PostgreSQL: written by make bench STORE=postgres ARGS=--publish -->\n",
        "<!-- end of results on PostgreSQL -->\n",
    ),
    "peers": ("<!-- peers: written by make bench PEERS=1 ARGS=--publish -->\n", "<!-- end of peers -->\n"),
}


def publish(results: Results) -> Path:
    """Write what stands between the two marks of the page; the page."""
    section = "results" if results.store == "sqlite" else results.store
    page = publish_section(section, report.to_markdown(results))
    plot.draw(results, [page.with_suffix(".svg" if section == "results" else f".{section}.svg")])
    return page


def publish_section(name: str, text: str) -> Path:
    """Write what stands between the marks of one section; the page."""
    page = replaced(_PAGE.read_text(encoding="utf-8"), name, text)
    _PAGE.write_text(page, encoding="utf-8")
    return _PAGE


def replaced(page: str, name: str, text: str) -> str:
    """The page with that text between the marks of the section. Both must be there."""
    begin, end = _MARKS[name]
    before, found_begin, rest = page.partition(begin)
    _, found_end, after = rest.partition(end)
    assert found_begin, f"{_PAGE} has no {begin!r}"
    assert found_end, f"{_PAGE} has no {end!r}"
    return f"{before}{begin}\n{text}\n\n{end}{after}"
