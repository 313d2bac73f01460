"""Trackio."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers.logger import Logger, rank_zero_experiment
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from mmrl.core.installation.optional_packages import require_packages
from mmrl.loggers.base import keep_run_id, read_run_id, sample_table


class Trackio(Logger):
    """Log to Trackio: to this machine, where `trackio show` draws it, or to a Space of the Hugging Face Hub.

    Args:
        project: of the tracker.
        run_name: of the run; None for one that the tracker makes.
        space_id: of a Space, as in user/space; None for this machine.
        save_dir: folder that keeps the name of the run, under which a resumed run goes on; None keeps none.
    """

    packages = ("trackio",)

    def __init__(
        self,
        project: str = "mmrl",
        run_name: str | None = None,
        space_id: str | None = None,
        save_dir: str | None = None,
    ):
        super().__init__()
        require_packages(self.packages, "logger=trackio")
        self.project, self.run_name, self.space_id, self._folder = project, run_name, space_id, save_dir
        self._run: Any = None
        self._config: dict[str, Any] = {}

    @property
    def name(self) -> str:
        return self.project

    @property
    def version(self) -> str | None:
        return self.run_name

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        """The run, which begins when it is asked for."""
        if self._run is None:
            import trackio

            self._run = trackio.init(
                self.project, self.run_name, space_id=self.space_id, config=self._config, resume="allow", embed=False
            )
            if self._folder is not None:
                keep_run_id(self._folder, self._run.name)
        return self._run

    def continue_run(self) -> None:
        """Log on into the run that this folder's earlier process began, unless another name was given."""
        if self.run_name is None and self._folder is not None:
            self.run_name = read_run_id(self._folder)

    @rank_zero_only
    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Keep the configuration, which Trackio takes when a run begins."""
        self._config = dict(params)

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        self.experiment.log(dict(metrics), step=step)

    @rank_zero_only
    def log_samples(self, groups: Sequence[Mapping[str, Any]], step: int) -> None:
        """Log a table with a row for every completion."""
        import trackio

        columns, rows = sample_table(groups, trackio.Image)
        self.experiment.log({"samples": trackio.Table(columns=columns, data=rows)}, step=step)

    @rank_zero_only
    def log_video(self, name: str, file: Path, step: int) -> None:
        """Log an MP4 file."""
        import trackio

        self.experiment.log({name: trackio.Video(str(file))}, step=step)

    @rank_zero_only
    def finalize(self, status: str) -> None:
        if self._run is not None:
            self._run.finish()
            self._run = None
