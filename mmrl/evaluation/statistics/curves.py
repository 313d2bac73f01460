"""Learning curve of a run."""

from __future__ import annotations

import csv
from pathlib import Path

from mmrl.evaluation.report.plots import Curve, plot_learning_curve, read_metrics
from mmrl.files.foreign import check_regular

_MAX_CURVES = 4  # number of distinguishable curves


def plot_run(run_dir: str | Path) -> Path | None:
    """Draw <run_dir>/learning_curve.png: training reward, and every held-out rate with its interval.

    A training reward with values outside of 0 to 1 is drawn on an axis of its own, at the right. None where metrics.csv
    is missing or has no held-out rate.
    """
    run_dir = Path(run_dir)
    metrics = run_dir / "metrics.csv"
    if not metrics.exists():
        return None
    check_regular(metrics, "remove what stands in the place of the run's metrics")
    with metrics.open() as file:
        columns = next(csv.reader(file), [])
    curves = [_training_curve(metrics)] if {"rollout/reward", "iterations"} <= set(columns) else []
    for name in sorted(c.removesuffix("/mean") for c in columns if c.startswith("val/") and c.endswith("/mean")):
        if f"{name}/lower" in columns:
            label = "held-out, " + " ".join(name.split("/")[1:])
            curves.append(Curve(f"{name}/mean", label, f"{name}/lower", f"{name}/upper", points=True))
    if len(curves) < 2 or "iterations" not in columns:
        return None
    title = f"{run_dir.name} (bars: Wilson 95 %)"
    figure_path = run_dir / "learning_curve.png"
    return plot_learning_curve(
        metrics, figure_path, curves[:_MAX_CURVES], y_label="share", title=title, index="iterations"
    )


def _training_curve(metrics: Path) -> Curve:
    """Return the curve of the training reward, on the axis of shares if all of its values are between 0 and 1."""
    values = read_metrics(metrics, "iterations").get("rollout/reward", {}).values()
    if all(0 <= value <= 1 for value in values):
        return Curve("rollout/reward", "training, as sampled")
    return Curve("rollout/reward", "training reward, as sampled (right)", own_axis="training reward")
