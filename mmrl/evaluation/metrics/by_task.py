"""Success rates per task, for simulators with several tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmrl.core.types import Episode
from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.metrics.success_rate import SuccessRate
from mmrl.evaluation.statistics.power import quantile


def get_task(episode: Episode) -> str:
    """Return an episode's task: of the prompt, else of the simulator's info, else the first part of the key."""
    task = episode.prompt.info.get("task", episode.info.get("task"))
    return str(task) if task is not None else episode.prompt.key.rsplit("/", 2)[0]


def group_by_task(episodes: Sequence[Episode]) -> dict[str, list[Episode]]:
    """Group episodes by task: tasks by name, episodes in order."""
    names = sorted({get_task(episode) for episode in episodes})
    return {name: [episode for episode in episodes if get_task(episode) == name] for name in names}


@dataclass(frozen=True)
class SuccessRateByTask(Evaluator):
    """`SuccessRate` of every task of a simulator, as task/metric, and the mean over tasks with equal weights.

    Args:
        score_name: name of a score of 0 or 1 that every task gives.
        level: confidence level of the intervals.
    """

    score_name: str = "success"
    level: float = 0.95

    def __post_init__(self) -> None:
        quantile(self.level)  # refuses an invalid level

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        rate = SuccessRate(self.score_name, self.level)
        each = {task: rate(part) for task, part in group_by_task(episodes).items()}
        out = {f"{task}/{name}": value for task, metrics in each.items() for name, value in metrics.items()}
        return {**out, "mean": sum(metrics["mean"] for metrics in each.values()) / len(each)}
