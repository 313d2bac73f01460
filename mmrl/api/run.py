"""Results of a finished or interrupted training run, read from its folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmrl.core.errors import ConfigError
from mmrl.files.atomic import restore_folder
from mmrl.runs.metrics_csv import NAME, read_rows
from mmrl.runs.run_folder import last_checkpoint

if TYPE_CHECKING:
    from mmrl.api.loaded_policy import LoadedPolicy


@dataclass(frozen=True)
class Run:
    """A training run, by its folder.

    Args:
        folder: with the run's config.yaml, as `mmrl fit` writes it.
    """

    folder: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", Path(self.folder))
        if not (self.folder / "config.yaml").is_file():
            raise ConfigError(f"{self.folder}: not the folder of a run (it has no config.yaml)")

    @property
    def metrics(self) -> list[dict[str, float]]:
        """Return the rows of metrics.csv in order: metrics of every iteration, and val/ metrics of every evaluation."""
        return [{name: float(value) for name, value in row.items()} for row in read_rows(self.folder / NAME)]

    @property
    def last_metrics(self) -> dict[str, float]:
        """The newest value of every metric."""
        return {name: value for row in self.metrics for name, value in row.items()}

    @property
    def policy(self) -> Path:
        """Folder of the exported policy: of a text policy for transformers, of others for policy.path."""
        return restore_folder(self.folder / "policy")

    @property
    def checkpoint(self) -> Path:
        """The newest checkpoint; `mmrl.fit(..., ckpt_path=run.checkpoint)` resumes the run."""
        return last_checkpoint(self.folder)

    def load_policy(self, **options: Any) -> LoadedPolicy:
        """The trained policy, ready to act; options as of `mmrl.load_policy`."""
        from mmrl.api.loaded_policy import load_policy

        return load_policy(self, **options)

    def evaluate(self, *overrides: str, **options: Any) -> Mapping[str, Any]:
        """Held-out metrics; arguments as of `mmrl.evaluate`."""
        from mmrl.api.evaluation import evaluate

        return evaluate(self, *overrides, **options)
