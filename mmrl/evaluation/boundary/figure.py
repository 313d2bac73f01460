"""Draw the reasoning boundary of two policies: pass@k curves, accuracies of problems, who solves what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from mmrl.evaluation.boundary.comparison import BINS, BoundaryComparison, accuracy_histogram
from mmrl.evaluation.report.plots import COLOURS
from mmrl.files.atomic import replace_path

SIDES = ("before", "after")


def draw_curves(axes: Any, boundary: BoundaryComparison, labels: tuple[str, str] = SIDES) -> None:
    """Draw pass@k of both over k, and the k at which they meet."""
    ks = np.arange(1, boundary.largest + 1)
    for colour, label, curve in zip(COLOURS[1::-1], labels, (boundary.before, boundary.after)):
        axes.plot(ks, curve, color=colour, label=label)
        axes.plot(boundary.ks, [curve[k - 1] for k in boundary.ks], "o", color=colour, markersize=4)
    if boundary.crossing > 1:
        axes.axvline(boundary.crossing, color="#777777", linestyle=":", linewidth=1)
        axes.annotate(f"k = {boundary.crossing:.0f}", (boundary.crossing, 0), xytext=(4, 6), textcoords="offset points")
    axes.set_xscale("log", base=2)
    axes.set_ylim(0, 1)
    axes.set_xlabel("k, samples")
    axes.set_ylabel("pass@k")
    axes.legend(frameon=False, loc="upper left")


def draw_accuracies(axes: Any, boundary: BoundaryComparison, labels: tuple[str, str] = SIDES) -> None:
    """Draw how many problems have which share of right samples."""
    places = np.arange(len(BINS))
    for number, (colour, label) in enumerate(zip(COLOURS[1::-1], labels)):
        counts = accuracy_histogram(boundary.accuracies[number])
        axes.bar(places + 0.4 * (number - 0.5), counts, 0.4, color=colour, label=label)
    axes.set_xticks(places, BINS, rotation=30)
    axes.set_xlabel("share of right samples")
    axes.set_ylabel("problems")


def draw_solved(axes: Any, boundary: BoundaryComparison) -> None:
    """Draw how many problems both, one of the two or neither solves."""
    counts = boundary.solved
    bars = axes.bar(list(counts), list(counts.values()), color=("#4477aa", "#ee6677", "#228833", "#bbbbbb"))
    axes.bar_label(bars)
    axes.set_ylabel(f"problems, {boundary.largest} samples")


def save_boundary(boundary: BoundaryComparison, title: str, path: Path) -> Path:
    """Save the three panels as a PNG; equal numbers give equal bytes."""
    figure = Figure(figsize=(13, 4), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.4, 1.2, 1))
    draw_curves(left, boundary)
    draw_accuracies(middle, boundary)
    draw_solved(right, boundary)
    left.set_title(title, loc="left", fontsize=10)
    for axes in (left, middle, right):
        axes.spines[["top", "right"]].set_visible(False)
    with replace_path(path) as file:
        figure.savefig(file, metadata={"Software": None})
    return path
