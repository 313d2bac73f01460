"""Plot learning curves."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from mmrl.files.atomic import replace_path
from mmrl.files.foreign import check_regular

COLOURS = ("#4477aa", "#ee6677", "#228833", "#aa3377")
"""Source: Paul Tol, "Colour schemes", 2021, bright; distinct for colour-blind readers."""


@dataclass(frozen=True)
class Curve:
    """One column of metrics.csv as a line, or as points with error bars.

    Args:
        column: name in metrics.csv.
        label: for the legend.
        lower: column of the lower end of the interval, or None.
        upper: column of the upper end of the interval, or None.
        points: marked points, for columns with few values; else a line with a band.
        own_axis: label of a second axis, at the right, on which the curve is drawn; None for the common one.
    """

    column: str
    label: str
    lower: str | None = None
    upper: str | None = None
    points: bool = False
    own_axis: str | None = None

    def __post_init__(self) -> None:
        if (self.lower is None) != (self.upper is None):
            raise ValueError(f"curve {self.column!r} needs both `lower` and `upper` for its interval, or neither")


def read_metrics(path: str | Path, index: str = "epoch") -> dict[str, dict[float, float]]:
    """Read the values of every column by iteration from a sparse metrics.csv; the last value of an iteration counts."""
    check_regular(path, "give the metrics.csv of a run")
    with open(path, newline="") as stream:
        rows = list(csv.DictReader(stream))
    if not rows or index not in rows[0]:
        raise ValueError(
            f"{path} has no column {index!r} to plot against; is it a metrics.csv of a finished iteration?"
        )
    columns: dict[str, dict[float, float]] = {name: {} for name in rows[0]}
    for row in rows:
        for name, text in row.items():
            if text and row[index]:
                columns[name][float(row[index])] = float(text)
    return columns


def plot_learning_curve(
    metrics_csv: str | Path,
    figure_path: str | Path,
    curves: Sequence[Curve],
    *,
    y_label: str = "success rate",
    x_label: str = "iteration",
    title: str = "",
    percent: bool = True,
    index: str = "epoch",
) -> Path:
    """Draw the curves against the iteration into a PNG of 1200 x 750 pixels.

    With `percent`, values are fractions and the axis runs from 0 to 100 %. Curves with an axis of their own share the
    one at the right, which fits their values. Needs no display and no global state.
    """
    metrics = read_metrics(metrics_csv, index)
    figure = Figure(figsize=(8, 5), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    right = axes.twinx() if any(curve.own_axis for curve in curves) else axes
    for position, curve in enumerate(curves):
        place = right if curve.own_axis else axes
        _draw(place, metrics, curve, COLOURS[position % len(COLOURS)], str(metrics_csv))
    _format_axes(axes, x_label, y_label, title, percent)
    lines, labels = axes.get_legend_handles_labels()
    if right is not axes:
        right.set_ylabel(", ".join(curve.own_axis for curve in curves if curve.own_axis))
        right.spines["top"].set_visible(False)
        more = right.get_legend_handles_labels()
        lines, labels = [*more[0], *lines], [*more[1], *labels]
    right.legend(lines, labels, frameon=False, loc="lower right")  # of the upper axes, so that no line crosses it
    with replace_path(figure_path) as file:
        figure.savefig(file, metadata={"Software": None})  # without date and version, so equal numbers give equal bytes
    return Path(figure_path)


def _draw(axes: Axes, metrics: Mapping[str, Mapping[float, float]], curve: Curve, colour: str, source: str) -> None:
    values = _column(metrics, curve.column, source)
    x, y = np.array(list(values)), np.array(list(values.values()))
    ends = None
    if curve.lower and curve.upper:
        lower, upper = _column(metrics, curve.lower, source), _column(metrics, curve.upper, source)
        if not set(values) <= set(lower) & set(upper):
            raise ValueError(f"{source}: {curve.lower!r} and {curve.upper!r} lack iterations of {curve.column!r}")
        ends = np.array([[lower[i] for i in values], [upper[i] for i in values]])
    if not curve.points:
        axes.plot(x, y, color=colour, linewidth=1.8, label=curve.label)
        if ends is not None:
            axes.fill_between(x, *ends, color=colour, alpha=0.18, linewidth=0)
        return
    # a mean may lie outside its interval by rounding, if computed in another precision
    bars = None if ends is None else np.maximum([y - ends[0], ends[1] - y], 0)
    axes.errorbar(
        x, y, yerr=bars, fmt="o--", color=colour, markersize=5, linewidth=1.0, capsize=3, label=curve.label, zorder=3
    )


def _column(metrics: Mapping[str, Mapping[float, float]], name: str, source: str) -> Mapping[float, float]:
    if not metrics.get(name):
        available = sorted(column for column, values in metrics.items() if values)
        raise KeyError(f"{source} has no values in column {name!r}; it has {available}")
    return metrics[name]


def _format_axes(axes: Axes, x_label: str, y_label: str, title: str, percent: bool) -> None:
    axes.set_xlabel(x_label)
    axes.set_ylabel(f"{y_label} (%)" if percent else y_label)
    if title:
        axes.set_title(title, loc="left")
    if percent:
        axes.set_ylim(-0.02, 1.02)
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, symbol=""))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(axis="y", color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
