"""Model-Task Alignment: control rewards that are random, mirrored or deliberately wrong.

Model-Task Alignment Drives Distinct RL Outcomes, 2025, arXiv:2508.21188. Learning curves under such rewards look like
those of the true reward where the start already has a high pass@k on the task, and nowhere else.

- random and mirrored rewards: `mmrl.rewards.corruption.Corruption`
- a wrong answer as the label: `WrongMajority`
- the most frequent answer as the label: `mmrl.methods.vision.ttrv.Agreement`
- one signed advantage: `mmrl.methods.losses.nsr`
- one training problem: `mmrl.methods.problems.one_shot`; the alignment itself: `mmrl.evaluation.metrics.pass_at_k`
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from mmrl.core.groups import get_score
from mmrl.core.types import Episode
from mmrl.rewards.compose import WeightedSum
from mmrl.rewards.extract import build_extractor


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
        extract = build_extractor(self.extract)
        answers = [extract(str(episode.output)) for episode in group]
        wrong = [get_score(episode, self.score_name) < self.success_threshold for episode in group]
        count = Counter(answer for answer, is_wrong in zip(answers, wrong) if is_wrong and answer is not None)
        label = count.most_common(1)[0][0] if count else None
        return [
            reward + float(is_wrong and label is not None and answer == label)
            for reward, answer, is_wrong in zip(super().__call__(group), answers, wrong)
        ]
