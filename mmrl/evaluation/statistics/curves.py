"""Learning curve of a run."""

from __future__ import annotations

import csv
from pathlib import Path

from mmrl.evaluation.report.plots import Curve, plot_learning_curve

_MAX_CURVES = 4  # number of distinguishable curves


def plot_run(run_dir: str | Path) -> Path | None:
    """Draw <run_dir>/learning_curve.png: training reward, and every held-out rate with its interval.

    None where metrics.csv is missing or has no held-out rate.
    """
    run_dir = Path(run_dir)
    metrics = run_dir / "metrics.csv"
    if not metrics.exists():
        return None
    with metrics.open() as file:
        columns = next(csv.reader(file), [])
    curves = [Curve("rollout/reward", "training, as sampled")] if "rollout/reward" in columns else []
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
