"""Plot a metric of groups of runs: the mean over seeds as a line, its interval as a band."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from mmrl.evaluation.report.plots import COLOURS
from mmrl.evaluation.statistics.seeds import SeedGroup


def plot_groups(groups: Sequence[SeedGroup], metric: str, path: Path, level: float = 0.95) -> Path:
    """Draw one PNG: for each group the mean over its seeds, and Student's t interval where it has several.

    Args:
        groups: of runs, with names for the legend.
        metric: column of metrics.csv.
        path: of the file.
        level: of the intervals.
    """
    figure = Figure(figsize=(8, 5), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    styles = ("-", "--", ":", "-.")
    for position, group in enumerate(groups):
        x, center, lower, upper = np.array(group.mean_curve(metric, level)).T
        colour, count = COLOURS[position % len(COLOURS)], len(group.runs)
        style = styles[position // len(COLOURS) % len(styles)]
        label = f"{group.name}, {count} seed{'s' if count > 1 else ''}"
        axes.plot(x, center, color=colour, linestyle=style, linewidth=1.8, marker="o", markersize=3, label=label)
        if count > 1:
            axes.fill_between(x, lower, upper, color=colour, alpha=0.18, linewidth=0)
    axes.set_xlabel(f"iteration (bands: {100 * level:g} % interval of the mean over seeds)")
    axes.set_ylabel(metric)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(axis="y", color="#dddddd", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, metadata={"Software": None})  # equal numbers give equal bytes
    return path
