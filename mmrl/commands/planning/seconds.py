"""Seconds of an iteration, scaled from a run that was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from mmrl.commands.planning.planning import RunPlan
from mmrl.core.errors import ConfigError
from mmrl.runs.metrics_csv import read_rows

PHASES = ("sync", "rollout", "score", "collate", "annotators", "learn")
ASSUMPTIONS = (
    "the same device and engine; seconds of rollout, annotators and learn grow with parameters times tokens of a rank, "
    "those of sync with parameters, those of score and collate with rows"
)


@dataclass(frozen=True)
class Seconds:
    """Seconds of an iteration by phase."""

    phases: dict[str, float]
    measured: dict[str, float]
    assumptions: str = ASSUMPTIONS

    @property
    def iteration(self) -> float:
        return sum(self.phases.values())


def read_seconds(path: Path) -> dict[str, float]:
    """Read the median seconds of each phase of a run's metrics.csv, without its first iteration."""
    rows = read_rows(path)
    medians = {}
    for phase in PHASES:
        values = [float(row[f"time/{phase}"]) for row in rows if row.get(f"time/{phase}")]
        if values:
            medians[phase] = median(values[1:] or values)
    if "learn" not in medians:
        raise ConfigError(f"--from {path.parent}: metrics.csv has no time/learn, so no iteration was measured")
    return medians


def scale_seconds(plan: RunPlan, run: RunPlan, measured: Mapping[str, float]) -> Seconds:
    """Scale the measured seconds of a run to a plan.

    Args:
        plan: to predict.
        run: plan of the measured run's configuration.
        measured: seconds of its phases.
    """
    factors = {
        "sync": plan.size.parameters / run.size.parameters,
        "score": plan.rows.iteration / run.rows.iteration,
        "collate": plan.rows.iteration / run.rows.iteration,
        "rollout": _work(plan) / _work(run),
        "annotators": _work(plan) / _work(run),
        "learn": _work(plan) * plan.update_epochs / (_work(run) * run.update_epochs),
    }
    return Seconds({name: value * factors[name] for name, value in measured.items()}, dict(measured))


def _work(plan: RunPlan) -> float:
    """Parameters times tokens of a rank in an iteration, each prompt read once."""
    tokens = plan.rows.prompts * plan.prompt_tokens + plan.rows.iteration * plan.response_tokens
    return float(plan.size.parameters) * tokens
