"""The results as a picture: every figure that has a target, as a share of it, on a logarithmic scale."""

import statistics
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter

from benchmarks.figures import Figure, shown
from benchmarks.results import Measured, Results
from benchmarks.workloads import WORKLOADS

_MET: Final = "#2a7f62"
_DISTURBED: Final = "#8a8a8a"
_MISSED: Final = "#b5403a"
_INK: Final = "#333333"
_GRID: Final = "#dddddd"


def draw(results: Results, files: list[Path]) -> None:
    """files: by their suffix, .svg or .png. Not written when nothing was measured that has a target."""
    rows = [
        (measured, figure)
        for measured in results.measured
        for figure in WORKLOADS[measured.workload].figures_on(results.store)
        if figure.target is not None and measured.values(figure.key)
    ]
    if not rows:
        return
    # Constant ids, so that the same figures give the same file.
    with mpl.rc_context({"svg.hashsalt": "pledger", "font.size": 9, "svg.fonttype": "none"}):
        canvas = Canvas(figsize=(9.5, 1.3 + 0.33 * len(rows)), layout="constrained")
        _draw_rows(canvas, rows)
        canvas.suptitle(
            _title(results),
            x=0.01,
            ha="left",
            weight="bold",
            color=_INK,
        )
        for file in files:
            canvas.savefig(file, dpi=160, metadata={"Date": None} if file.suffix == ".svg" else None)


def _title(results: Results) -> str:
    where = " on PostgreSQL" if results.store == "postgres" else ""
    title = f"Pledger {results.machine['pledger']}{where} against its targets, {results.started:%d %B %Y}"
    disturbed = [each.workload for each in results.measured if each.is_disturbed]
    if disturbed:
        title += f"\nother programs disturbed {', '.join(disturbed)}"
    return title + (" (quick run)" if results.quick else "")


def _draw_rows(canvas: Canvas, rows: list[tuple[Measured, Figure]]) -> None:
    axes = canvas.add_subplot()
    axes.set_xscale("log", base=2)
    axes.axvspan(1e-9, 1, color=_MET, alpha=0.06, linewidth=0)
    axes.axvline(1, color=_INK, linewidth=1.2)
    shares = []
    for height, (measured, figure) in enumerate(rows):
        values = measured.values(figure.key)
        median = statistics.median(values)
        spread = sorted(figure.share_of_target(each) for each in values)
        share = figure.share_of_target(median)
        shares += [spread[0], spread[-1]]
        color = {"met": _MET, "missed": _MISSED}.get(measured.verdict(figure), _DISTURBED)
        axes.plot(
            [spread[0], spread[-1]], [height, height], color=color, linewidth=3, alpha=0.4, solid_capstyle="round"
        )
        axes.plot([share], [height], "o", color=color, markersize=6)
        text = f"{shown(median, figure.unit)}   ({figure.bound})"
        axes.annotate(text, (1.01, height), xycoords=("axes fraction", "data"), va="center", color=color)
    axes.set_xlim(min(0.5, *shares) / 1.3, max(2.0, *shares) * 1.3)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_yticks(range(len(rows)), [f"{measured.workload}  {figure.label}" for measured, figure in rows])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:g}x" if share >= 1 else f"1/{1 / share:g}"))
    axes.set_xlabel("measured, as a multiple of the target (left of the line: met). Dot: median; bar: min to max")
    axes.grid(axis="x", color=_GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, colors=_INK)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
