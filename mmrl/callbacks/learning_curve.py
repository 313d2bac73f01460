"""Plot the learning curve of a run."""

from __future__ import annotations

from pathlib import Path

import lightning as L

from mmrl.evaluation.statistics.curves import plot_run


class LearningCurve(L.Callback):
    """Draw <run_dir>/learning_curve.png at the end: training reward, and every held-out rate with its interval.

    Args:
        run_dir: folder of the run, with metrics.csv.
    """

    def __init__(self, run_dir: str):
        self.run_dir = Path(run_dir)

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.is_global_zero:
            plot_run(self.run_dir)
