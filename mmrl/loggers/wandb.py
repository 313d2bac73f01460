"""Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import WandbLogger
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from mmrl.core.installation.optional_packages import require_packages
from mmrl.loggers.base import keep_run_id, read_run_id, sample_table


class Wandb(WandbLogger):
    """Log to Weights & Biases; offline, `wandb sync` uploads the run later.

    Args:
        save_dir: folder of the files.
        project: of the tracker.
        name: of the run; None for one that the tracker makes.
        offline: write files alone, without a network.
        id: of a run that is continued.
    """

    packages = ("wandb",)

    def __init__(
        self,
        save_dir: str,
        project: str = "mmrl",
        name: str | None = None,
        offline: bool = False,
        id: str | None = None,
    ):
        require_packages(self.packages, "logger=wandb")
        super().__init__(name=name, save_dir=save_dir, project=project, offline=offline, id=id)

    def continue_run(self) -> None:
        """Log on into the run that this folder's earlier process began, unless another id was given."""
        if self._id is None and (run_id := read_run_id(self._save_dir or ".")) is not None:
            self._id = self._wandb_init["id"] = run_id

    @rank_zero_only
    def log_hyperparams(self, params: Any) -> None:  # type: ignore[override]  # no further arguments
        """Log the configuration, and keep the id of the run."""
        super().log_hyperparams(params)
        keep_run_id(self._save_dir or ".", str(self.experiment.id))

    @rank_zero_only
    def log_samples(self, groups: Sequence[Mapping[str, Any]], step: int) -> None:
        """Log a table with a row for every completion."""
        import wandb

        columns, rows = sample_table(groups, wandb.Image)
        self.log_table("samples", columns=columns, data=rows, step=step)

    @rank_zero_only
    def log_video(self, name: str, file: Path, step: int) -> None:  # type: ignore[override]  # one file
        """Log an MP4 file."""
        super().log_video(name, [str(file)], step=step, format=["mp4"])
