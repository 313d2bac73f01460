"""Plot a stored result: method and baseline over the iterations, each with a band over its seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from mmrl.evaluation.report.plots import COLOURS

MAX_POINTS = 200


def read_curve(rows: Sequence[Mapping[str, str]], metric: str, index: str = "iterations") -> list[tuple[float, float]]:
    """Return (iteration, value) of one run, thinned to `MAX_POINTS`."""
    points = [(float(row[index]), float(row[metric])) for row in rows if row.get(metric) and row.get(index)]
    if len(points) <= MAX_POINTS:
        return points
    return [points[round(i)] for i in np.linspace(0, len(points) - 1, MAX_POINTS)]


def plot_curves(result: Mapping[str, Any], title: str, path: Path) -> Path:
    """Draw the curves of a result into a PNG: the mean over seeds as a line, lowest to highest seed as a band."""
    figure = Figure(figsize=(7, 4.2), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    baseline = result["baseline"]
    names = {"method": result["recipe"], "baseline": baseline["name"] if isinstance(baseline, Mapping) else ""}
    for colour, (side, runs) in zip(COLOURS, result["curves"].items()):
        grid = sorted({x for run in runs for x, _ in run})
        if not grid:
            continue
        seeds = np.array([np.interp(grid, *zip(*run)) for run in runs if run])  # type: ignore[call-overload]
        axes.plot(grid, seeds.mean(0), color=colour, linewidth=1.8, label=f"{names[side]}, {len(seeds)} seeds")
        axes.fill_between(grid, seeds.min(0), seeds.max(0), color=colour, alpha=0.18, linewidth=0)
    axes.set_xlabel("iteration (bands: lowest to highest seed)")
    axes.set_ylabel(result["metric"])
    axes.set_title(fill(title, 82), loc="left", fontsize=10)
    axes.grid(axis="y", color="#dddddd", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, metadata={"Software": None})  # equal numbers give equal bytes
    return path
