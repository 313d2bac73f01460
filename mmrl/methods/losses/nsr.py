"""NSR (negative sample reinforcement): REINFORCE with one constant advantage for correct and one for wrong answers.

The Surprising Effectiveness of Negative Reinforcement in LLM Reasoning, 2025, arXiv:2506.01347.

- the signed weights as advantages: `SignedAdvantage`
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from mmrl.annotators.base import Annotator
from mmrl.core.batch import Batch
from mmrl.core.types import Context


@dataclass(frozen=True)
class SignedAdvantage(Annotator):
    """Advantage `positive_weight` of correct answers and -`negative_weight` of wrong ones, without a baseline.

    Weighted-REINFORCE is 0.1 and 1. Negative sample reinforcement (NSR) is 0 and 1, positive (PSR) 1 and 0; the paper
    leaves answers of weight 0 out of the denominator of the loss, here they stay in it. On fresh samples the expected
    gradient is (positive_weight + negative_weight) times that of the success probability, whatever the two are; they
    differ in variance, and in which tokens of the samples at hand they move: a wrong answer gives its probability to
    all others in proportion to theirs. Source: The Surprising Effectiveness of Negative Reinforcement in LLM Reasoning,
    2025, section 3, arXiv:2506.01347.

    Args:
        positive_weight: advantage of an answer that reaches the threshold, the paper's lambda.
        negative_weight: minus the advantage of the others.
        success_threshold: smallest reward of a right answer.
    """

    positive_weight: float = 0.1
    negative_weight: float = 1.0
    success_threshold: float = 1.0

    def __post_init__(self) -> None:
        if min(self.positive_weight, self.negative_weight) < 0 or self.positive_weight + self.negative_weight == 0:
            raise ValueError(
                "signed_advantage: positive_weight and negative_weight must be >= 0 and not both 0, got "
                f"{self.positive_weight} and {self.negative_weight}"
            )

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "episode_reward"})

    def writes(self) -> frozenset[str]:
        return frozenset({"advantages"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        right = batch["episode_reward"] >= self.success_threshold
        advantage = torch.where(right, self.positive_weight, -self.negative_weight)
        return batch.with_columns(advantages=torch.where(batch["action_mask"], advantage[:, None], 0.0))
