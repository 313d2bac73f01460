"""MLflow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import MLFlowLogger
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from mmrl.core.installation.optional_packages import require_packages
from mmrl.loggers.base import COLUMNS, keep_run_id, read_run_id, sample_rows


class MLflow(MLFlowLogger):
    """Log to MLflow: to a server, or to a database and files in a folder.

    Args:
        save_dir: folder of mlflow.db and the artifacts, where there is no `tracking_uri`.
        experiment_name: of the tracker.
        run_name: of the run; None for one that the tracker makes.
        tracking_uri: of a server, as in http://localhost:5000; None for `save_dir`.
        run_id: of a run that is continued.
    """

    packages = ("mlflow",)

    def __init__(
        self,
        save_dir: str,
        experiment_name: str = "mmrl",
        run_name: str | None = None,
        tracking_uri: str | None = None,
        run_id: str | None = None,
    ):
        require_packages(self.packages, "logger=mlflow")
        self._folder = folder = Path(save_dir).absolute()
        local = tracking_uri is None
        if local:
            folder.mkdir(parents=True, exist_ok=True)
        super().__init__(
            experiment_name=experiment_name,
            run_name=run_name,
            tracking_uri=f"sqlite:///{folder / 'mlflow.db'}" if local else tracking_uri,
            artifact_location=(folder / "artifacts").as_uri() if local else None,
            run_id=run_id,
        )

    def continue_run(self) -> None:
        """Log on into the run that this folder's earlier process began, unless another id was given."""
        if self._run_id is None:
            self._run_id = read_run_id(self._folder)

    @rank_zero_only
    def log_hyperparams(self, params: Any) -> None:  # type: ignore[override]  # no further arguments
        """Log the configuration of a new run, and keep the run's id; MLflow takes a parameter once."""
        run_id = read_run_id(self._folder)
        if run_id is None or run_id != self.run_id:
            super().log_hyperparams(params)
            keep_run_id(self._folder, str(self.run_id))

    @rank_zero_only
    def log_samples(self, groups: Sequence[Mapping[str, Any]], step: int) -> None:
        """Append a row for every completion to the table samples.json."""
        columns = zip(*sample_rows(groups))
        self.experiment.log_table(self.run_id, dict(zip(COLUMNS, map(list, columns))), "samples.json")

    @rank_zero_only
    def log_video(self, name: str, file: Path, step: int) -> None:
        """Store an MP4 file among the artifacts."""
        self.experiment.log_artifact(self.run_id, str(file), f"videos/{name}")
