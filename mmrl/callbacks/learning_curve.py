"""The run as a picture."""

from __future__ import annotations

import csv
from pathlib import Path

import lightning as L

from mmrl.evaluation.plots import Curve, learning_curve


class LearningCurve(L.Callback):
    """Draws <run_dir>/learning_curve.png at the end: training reward, and every held-out rate with its interval.

    Args:
        run_dir: folder of the run, with metrics.csv.
    """

    def __init__(self, run_dir: str):
        self.run_dir = Path(run_dir)

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        metrics = self.run_dir / "metrics.csv"
        if not trainer.is_global_zero or not metrics.exists():
            return
        with metrics.open() as file:
            columns = next(csv.reader(file), [])
        curves = [Curve("rollout/reward", "training, as sampled")] if "rollout/reward" in columns else []
        for name in sorted(c.removesuffix("/mean") for c in columns if c.startswith("val/") and c.endswith("/mean")):
            if f"{name}/lower" in columns:
                label = "held-out, " + " ".join(name.split("/")[1:])
                curves.append(Curve(f"{name}/mean", label, f"{name}/lower", f"{name}/upper", points=True))
        if len(curves) > 1 and "iterations" in columns:
            title = f"{self.run_dir.name} (bars: Wilson 95 %)"
            picture = self.run_dir / "learning_curve.png"
            learning_curve(metrics, picture, curves[:4], y_label="share", title=title, index="iterations")
