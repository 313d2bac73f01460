"""GUI-G1: weight the reward of a grounding prompt by the relative size of its target, small ones most.

GUI-G1: Understanding R1-Zero-Like Training for Visual Grounding in GUI Agents, 2025, arXiv:2505.15810.

- the weight of a prompt by the relative size of its target: `difficulty_weight`, `SizeWeightedSum`
- hit, overlap and edges as one reward: `mmrl.rewards.boxes.grounding_reward`
- a constant in place of the response length: the weighting `ConstantLength`; no division by the group's standard
  deviation: `GroupAdvantage(scale=None)`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmrl.core.types import Episode, Task
from mmrl.rewards.compose import WeightedSum


def difficulty_weight(share: float, min_share: float, max_share: float) -> float:
    """Weight of a prompt whose target covers `share` of the image: 1/2 + (1/share - min) / (max - min).

    min and max are those of 1/share over the data set, so the weight is from 1/2 for the largest target to 3/2 for the
    smallest one; shares outside [min_share, max_share] count as the nearer end. 1 if all targets have one size.
    Source: GUI-G1, 2025, section 3.3, arXiv:2505.15810.
    """
    if min_share == max_share:
        return 1.0
    low, high = 1 / max_share, 1 / min_share
    return 0.5 + (min(max(1 / share, low), high) - low) / (high - low)


@dataclass(frozen=True)
class SizeWeightedSum(WeightedSum):
    """Reward of an episode: difficulty_weight(share) * sum_k weights_k * scores_k, share from info["target_share"].

    All rewards of a group have the same factor, and so do their advantages where they are not divided by the group's
    standard deviation; then the loss of the prompt has it too, which is how the paper weighs it.
    Source: GUI-G1, 2025, section 3.3, arXiv:2505.15810.

    Args:
        weights: by name of the score.
        min_share: area of the smallest target of the data set divided by that of its image.
        max_share: the same of the largest target.
    """

    min_share: float = 0.01
    max_share: float = 0.2

    def __post_init__(self) -> None:
        if not 0 < self.min_share <= self.max_share <= 1:
            raise ValueError(
                "data.reward: need 0 < min_share <= max_share <= 1, the extremes of target area / image area, got "
                f"{self.min_share} and {self.max_share}"
            )

    def check_task(self, task: Task) -> None:
        if "target_share" not in task[0].info:
            raise ValueError(
                f"data.reward: prompts of task {task.name!r} have no info 'target_share', the area of the target "
                "divided by that of the image; use a task that has it, such as clicks, or the reward WeightedSum"
            )

    def __call__(self, group: Sequence[Episode]) -> Sequence[float]:
        shares = [episode.prompt.info["target_share"] for episode in group]
        factors = [difficulty_weight(share, self.min_share, self.max_share) for share in shares]
        return [factor * reward for factor, reward in zip(factors, super().__call__(group))]
