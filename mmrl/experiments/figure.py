"""Plot a stored result: method and baseline over the iterations, each with the band of its seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from mmrl.evaluation.report.plots import COLOURS
from mmrl.experiments.stored import told

MOST = 200  # points per plotted curve


def curve(rows: Sequence[Mapping[str, str]], column: str, index: str = "iterations") -> list[tuple[float, float]]:
    """(iteration, value) of one run, thinned to `MOST` points."""
    points = [(float(row[index]), float(row[column])) for row in rows if row.get(column) and row.get(index)]
    if len(points) <= MOST:
        return points
    return [points[round(i)] for i in np.linspace(0, len(points) - 1, MOST)]


def plot_curves(proof: Mapping[str, Any], path: Path) -> Path:
    """Draw the proof's curves into a PNG: the mean over seeds as a line, lowest to highest seed as a band."""
    figure = Figure(figsize=(7, 4.2), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    baseline = proof["baseline"]
    names = {"method": proof["recipe"], "baseline": baseline["name"] if isinstance(baseline, Mapping) else ""}
    for colour, (side, runs) in zip(COLOURS, proof["curves"].items()):
        grid = sorted({x for run in runs for x, _ in run})
        if not grid:
            continue
        seeds = np.array([np.interp(grid, *zip(*run)) for run in runs if run])  # type: ignore[call-overload]
        axes.plot(grid, seeds.mean(0), color=colour, linewidth=1.8, label=f"{names[side]}, {len(seeds)} seeds")
        axes.fill_between(grid, seeds.min(0), seeds.max(0), color=colour, alpha=0.18, linewidth=0)
    axes.set_xlabel("iteration (bands: lowest to highest seed)")
    axes.set_ylabel(proof["watched"])
    axes.set_title(fill(f"{proof['recipe']}: {told(proof)}", 82), loc="left", fontsize=10)
    axes.grid(axis="y", color="#dddddd", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, metadata={"Software": None})  # the same numbers give the same bytes
    return path
