"""TimeLens: draw clips by how badly the start grounds them, and measure recall at thresholds of the interval's IoU.

TimeLens: Rethinking Video Temporal Grounding with Multimodal LLMs, 2025, arXiv:2512.14698.

- probabilities of the clips from the IoU of the start: `difficulty_weights`
- measured before training, then drawn once without replacement: `DifficultySampler`
- R1@0.3, 0.5, 0.7 and the mean IoU: `RecallAtIoU`
- the IoU alone as reward, no thought, no division by the group's standard deviation: the configuration
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mmrl.core.errors import check_at_least, check_interval, check_positive
from mmrl.core.rng import derive_rng
from mmrl.core.types import Context, Episode
from mmrl.curricula.measured import MeasuredChoice
from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.metrics.finished_episodes import count_errors, drop_errors, get_score


def difficulty_weights(scores: np.ndarray, mean: float = 0.05, std: float = 0.2, bins: int = 20) -> np.ndarray:
    """Probability of each clip: exp(-((x - mean) / std)^2 / 2) / (clips in the bin of x + 1e-6), over their sum.

    The bins divide [0, 1]; without the count, clips of a frequent score would be drawn most, whatever it is.
    Source: TimeLens, 2025, difficulty-based sampling, arXiv:2512.14698, with the bins of its released code.
    """
    places = np.clip(np.digitize(scores, np.linspace(0, 1, bins + 1)), 1, bins) - 1
    weights = np.exp(-0.5 * ((scores - mean) / std) ** 2) / (np.bincount(places, minlength=bins)[places] + 1e-6)
    return weights / weights.sum()


class DifficultySampler(MeasuredChoice):
    """Selects clips to measure the score of the start, draws hard ones without replacement, and repeats those.

    Put `DropMeasuring` into data.transforms, so that nothing is learned while the start is measured. A clip is measured
    once where data.num_prompts * measure_iterations is not above the size of the task; its score is the mean of its
    completions. Source: TimeLens, 2025, arXiv:2512.14698.

    Args:
        measure_iterations: at the beginning.
        size: clips that are drawn.
        mean: score that is drawn most.
        std: how fast the probability falls on both sides of it; a large one draws every score alike.
        bins: of the scores, within which clips share a probability.
        score_name: "reward", or the name of a score, in [0, 1].
    """

    def __init__(
        self,
        measure_iterations: int,
        size: int,
        mean: float = 0.05,
        std: float = 0.2,
        bins: int = 20,
        score_name: str = "reward",
    ):
        super().__init__(measure_iterations, score_name)
        check_at_least(1, "curriculum", size=size, bins=bins)
        check_positive("curriculum", std=std)
        self.size, self.mean, self.std, self.bins = size, mean, std, bins

    def choose(self, scores: Mapping[int, float], ctx: Context) -> list[int]:
        if len(scores) < self.size:
            raise ValueError(
                f"curriculum.size is {self.size}, but {len(scores)} problems were measured in measure_iterations="
                f"{self.measure_iterations}; lower size, or raise measure_iterations or data.num_prompts"
            )
        weights = difficulty_weights(np.array(list(scores.values())), self.mean, self.std, self.bins)
        rng = derive_rng("difficulty_sampler", ctx.seed)
        return [int(index) for index in rng.choice(list(scores), self.size, replace=False, p=weights)]


@dataclass(frozen=True)
class RecallAtIoU(Evaluator):
    """Share of the episodes whose IoU reaches each threshold, as recall@0.5, and the mean IoU; both without errors.

    Source: TimeLens, 2025, R1@m and mIoU, arXiv:2512.14698.

    Args:
        thresholds: of the IoU, in (0, 1].
        score_name: name of the score that is the IoU.
    """

    thresholds: Sequence[float] = (0.3, 0.5, 0.7)
    score_name: str = "iou"

    def __post_init__(self) -> None:
        for threshold in self.thresholds:
            check_interval("recall_at_iou", "(0, 1]", thresholds=threshold)

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        overlaps = np.array([get_score(episode, self.score_name) for episode in drop_errors(episodes)])
        recalls = {f"recall@{threshold:g}": float((overlaps >= threshold).mean()) for threshold in self.thresholds}
        return {**recalls, "mean_iou": float(overlaps.mean()), "errors": count_errors(episodes)}
