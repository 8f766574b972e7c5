"""The comparison as a picture: how many times worse than Pledger each engine is, on a logarithmic scale."""

from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter

from benchmarks.peers.catalogue import FIGURES, PEERS, Compared
from benchmarks.peers.results import Comparison

_INK: Final = "#333333"
_GRID: Final = "#dddddd"

#: Told apart by shape too, for those who do not see all colours.
_MARKS: Final = (
    ("o", "#2a7f62"),
    ("*", "#4fae8b"),
    ("s", "#3b6fb6"),
    ("D", "#7a5aa6"),
    ("^", "#b5403a"),
    ("v", "#c98a1b"),
    ("P", "#5f6b73"),
    ("X", "#9aa5ad"),
)


def draw(found: Comparison, files: list[Path]) -> None:
    """files: by their suffix, .svg or .png."""
    rows = [each for each in FIGURES if each.headline and any(found.times_worse(peer, each) for peer in PEERS)]
    # Constant ids, so that the same figures give the same file.
    with mpl.rc_context({"svg.hashsalt": "pledger", "font.size": 9, "svg.fonttype": "none"}):
        canvas = Canvas(figsize=(9.5, 2.0 + 0.36 * len(rows)), layout="constrained")
        _draw_rows(canvas, found, rows)
        title = f"Other engines beside Pledger {found.machine['pledger']}, {found.started:%d %B %Y}"
        canvas.suptitle(title + (" (quick run)" if found.quick else ""), x=0.01, ha="left", weight="bold", color=_INK)
        for file in files:
            canvas.savefig(file, dpi=160, metadata={"Date": None} if file.suffix == ".svg" else None)


def _draw_rows(canvas: Canvas, found: Comparison, rows: list[Compared]) -> None:
    axes = canvas.add_subplot()
    axes.set_xscale("log")
    marks = dict(zip(PEERS, _MARKS, strict=True))
    for terms in found.terms:
        points = [
            (times, height)
            for height, figure in enumerate(rows)
            if (times := found.times_worse(terms.peer, figure)) is not None
        ]
        if points:
            mark, color = marks[terms.peer]
            across, down = zip(*points, strict=True)
            axes.plot(across, down, mark, color=color, markersize=6, alpha=0.9, label=PEERS[terms.peer].title)
    axes.axvline(1, color=_INK, linewidth=1.2)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_yticks(range(len(rows)), [f"{figure.workload}  {figure.label}" for figure in rows])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda times, _: f"{times:g}x" if times >= 1 else f"1/{1 / times:g}"))
    axes.set_xlabel("times worse than Pledger (slower, or less done in the same time); left of the line: better")
    axes.grid(axis="both", color=_GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, colors=_INK)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    if axes.lines[:-1]:
        canvas.legend(loc="outside lower center", ncols=4, frameon=False, labelcolor=_INK)
