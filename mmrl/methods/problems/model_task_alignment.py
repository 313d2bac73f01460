"""Model-Task Alignment: eight corruptions of one recipe's reward, data or advantages, each by one name.

Model-Task Alignment Drives Distinct RL Outcomes, 2025, arXiv:2508.21188. Learning curves under such rewards look like
those of the true reward where the start already has a high pass@k on the task, and nowhere else.

- rewards that are random, of a wrong answer, of the form, of the most frequent answer or of certainty: `ArmReward`
- the most frequent wrong answer as the label: `WrongMajority`; mirrored rewards: `mmrl.rewards.corruption.Corruption`
- advantages of one sign: `ArmAdvantages`; one training problem: `ArmProblems`
- the alignment itself: `mmrl.evaluation.metrics.pass_at_k`
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from mmrl.annotators.base import Annotator
from mmrl.core.batch import Batch
from mmrl.core.groups import get_score
from mmrl.core.types import Context, Episode
from mmrl.curricula.sampler import Shuffled
from mmrl.ops.masked import zero_outside
from mmrl.rewards.compose import WeightedSum
from mmrl.rewards.corruption import Corruption
from mmrl.rewards.extract import build_extractor

ARMS = ("ground_truth", "random", "wrong", "format", "majority", "entropy", "one_shot", "positive", "negative")
"""The true reward and eight corruptions."""
Arm = Literal["ground_truth", "random", "wrong", "format", "majority", "entropy", "one_shot", "positive", "negative"]


@dataclass(frozen=True)
class WrongMajority(WeightedSum):
    """Reward for the most frequent wrong answer among the completions of a prompt.

    R_j = 1 if answer_j is that answer, else 0, plus sum_k weights_k * scores_k for labels that are known. So every
    group teaches a mistake that the policy already makes. The first counts at a tie; a group without a wrong answer has
    no such reward. Source of the arm: Model-Task Alignment Drives Distinct RL Outcomes, 2025, incorrect rewards,
    arXiv:2508.21188, where the wrong label of a problem is fixed.

    Args:
        weights: by name of the score of the task; weights of 0 leave the labels out of the reward.
        extract: how an answer is found in a completion, see `mmrl.rewards.extract`.
        score_name: score of the task by which an answer is right.
        success_threshold: smallest score of a right answer.
    """

    extract: str = "text"
    score_name: str = "exact"
    success_threshold: float = 1.0

    def __post_init__(self) -> None:
        build_extractor(self.extract, "data.reward.extract")
        if self.score_name == "reward":
            raise ValueError("data.reward.score_name must be a score of the task; the reward is computed from it")

    def __call__(self, group: Sequence[Episode]) -> Sequence[float]:
        wrong = [get_score(episode, self.score_name) < self.success_threshold for episode in group]
        return [a + b for a, b in zip(super().__call__(group), match_majority(group, self.extract, wrong))]


def match_majority(group: Sequence[Episode], extract: str, counted: Sequence[bool]) -> list[float]:
    """Compute for each completion whether its answer is the most frequent one of those that are counted: 1 or 0.

    The first counts at a tie; no answer is the most frequent where none was found.

    Args:
        group: completions of one prompt.
        extract: how an answer is found.
        counted: the completions among whose answers it is; the others get 0.
    """
    extractor = build_extractor(extract)
    answers = [extractor(str(episode.output)) for episode in group]
    count = Counter(answer for answer, counts in zip(answers, counted) if counts and answer is not None)
    label = count.most_common(1)[0][0] if count else None
    return [float(counts and label is not None and answer == label) for answer, counts in zip(answers, counted)]


@dataclass(frozen=True)
class ArmReward(WeightedSum):
    """Reward of an arm of the study; all but the corruption is the same recipe.

    ground_truth, one_shot, positive and negative: sum_k weights_k * scores_k. random: 0 or 1 with equal probabilities.
    wrong: `WrongMajority`, without the score. format: the score of the form. majority: 1 for the most frequent answer
    of the prompt, else 0. entropy: the mean log-prob of the completion's tokens as they were sampled, whose expectation
    is minus the policy's entropy per token, so that certainty is rewarded.

    Args:
        weights: by name of the score, of the true reward.
        arm: one of `ARMS`. `ArmAdvantages` and `ArmProblems` read the same name.
        score_name: score of the task by which an answer is right.
        format_name: score of the task for the form of an answer.
        extract: how an answer is found in a completion, see `mmrl.rewards.extract`.
        success_threshold: smallest score of a right answer.
        seed: of random rewards.
    """

    arm: Arm = "ground_truth"
    score_name: str = "exact"
    format_name: str = "format"
    extract: str = "text"
    success_threshold: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_arm(self.arm, "data.reward")
        build_extractor(self.extract, "data.reward.extract")
        if "reward" in (self.score_name, self.format_name):
            raise ValueError("data.reward: score_name and format_name are scores of the task, not the reward itself")

    def __call__(self, group: Sequence[Episode]) -> Sequence[float]:
        if self.arm == "random":
            return Corruption(WeightedSum({}), random=1.0, seed=self.seed)(group)
        if self.arm == "wrong":
            return WrongMajority({}, self.extract, self.score_name, self.success_threshold)(group)
        if self.arm == "majority":
            return match_majority(group, self.extract, [True] * len(group))
        if self.arm == "entropy":
            return [_mean_logprob(episode) for episode in group]
        if self.arm == "format":
            return WeightedSum({self.format_name: 1.0})(group)
        return super().__call__(group)


@dataclass(frozen=True)
class ArmAdvantages(Annotator):
    """Advantages max(A, 0) in the arm positive, min(A, 0) in the arm negative, and A in the others.

    Args:
        arm: one of `ARMS`.
    """

    arm: Arm = "ground_truth"

    def __post_init__(self) -> None:
        check_arm(self.arm, "data.annotators.arm")

    def reads(self) -> frozenset[str]:
        return frozenset({"advantages", "action_mask"})

    def writes(self) -> frozenset[str]:
        return frozenset({"advantages"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        advantages = zero_outside(batch["advantages"], batch["action_mask"])
        if self.arm == "positive":
            advantages = advantages.clamp(min=0)
        if self.arm == "negative":
            advantages = advantages.clamp(max=0)
        return batch.with_columns(advantages=advantages)


class ArmProblems(Shuffled):
    """Selects one training problem again and again in the arm one_shot, and shuffled problems in the others.

    Args:
        arm: one of `ARMS`.
        problem: index of the one problem.
    """

    def __init__(self, arm: Arm = "ground_truth", problem: int = 0):
        super().__init__()
        check_arm(arm, "curriculum")
        self.arm, self.problem = arm, problem

    def select(self, count: int, ctx: Context) -> list[int]:
        if self.arm != "one_shot":
            return super().select(count, ctx)
        if not 0 <= self.problem < len(ctx.task):
            raise ValueError(
                f"curriculum.problem={self.problem} is none of the {len(ctx.task)} problems of task {ctx.task.name!r}"
            )
        return [self.problem] * count


def check_arm(arm: str, place: str) -> None:
    """Refuse a name that is no arm.

    Args:
        arm: a name.
        place: of the key, for the message.
    """
    if arm not in ARMS:
        raise ValueError(f"{place}.arm must be one of {', '.join(ARMS)}, got {arm!r}")


def _mean_logprob(episode: Episode) -> float:
    """Mean log-prob of the tokens that the policy chose, as they were sampled, nats; 0 without one."""
    rows = [turn.completion for turn in episode.turns]
    chosen = [row.behavior_logprobs[row.action_mask] for row in rows]
    values = torch.cat(chosen) if chosen else torch.zeros(0)
    return float(values.float().mean()) if values.numel() else 0.0
