"""Save the plots of evaluators at the end of a run."""

from __future__ import annotations

from pathlib import Path

import lightning as L

from mmrl.data.rollout_data import RolloutData
from mmrl.evaluation.report.evaluator_plot import save_plot


class EvaluationPlots(L.Callback):
    """Save <run_dir>/plots/<decode>-<evaluator>.png for every evaluator with a plot: start and end of the run.

    Args:
        run_dir: folder of the run.
    """

    def __init__(self, run_dir: str):
        self.run_dir = Path(run_dir)

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        data = getattr(trainer, "datamodule", None)  # absent without a data module
        held_out = data.evaluation if isinstance(data, RolloutData) else None
        if held_out is None or not trainer.is_global_zero:
            return
        for decode, start in held_out.start.items():
            if decode not in held_out.latest:  # a run resumed at its end has measured nothing
                continue
            for name, evaluator in held_out.evaluators.items():
                save_plot(self.run_dir, decode, name, evaluator, start, held_out.latest[decode])
