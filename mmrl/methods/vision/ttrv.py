"""TTRV: test-time RL without labels, rewarding the frequency of an answer in its group minus the answer entropy.

TTRV: Test-Time Reinforcement Learning for Vision Language Models, 2025, arXiv:2510.06783.

- frequencies of the answers of a group and their entropy: `answer_shares`, `answer_entropy`
- the reward: `Agreement`, with `majority` that of TTRL, 2025, arXiv:2504.16084
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from mmrl.core.types import Episode
from mmrl.rewards.compose import WeightedSum
from mmrl.rewards.extract import build_extractor


def answer_shares(answers: Sequence[str | None]) -> list[float]:
    """Fraction of all answers that equal each answer; 0 for None, which is no answer."""
    count = Counter(answers)
    return [0.0 if answer is None else count[answer] / len(answers) for answer in answers]


def answer_entropy(answers: Sequence[str | None]) -> float:
    """Entropy of the distribution of the answers, divided by the log of the number of distinct ones: in [0, 1]."""
    shares = [count / len(answers) for count in Counter(answers).values()]
    if len(shares) < 2:
        return 0.0
    return -sum(share * math.log(share) for share in shares) / math.log(len(shares))


@dataclass(frozen=True)
class Agreement(WeightedSum):
    """Label-free reward: the frequency of the answer among the completions of its prompt, minus their entropy.

    R_j = p(answer_j) - entropy_coef * H + sum_k weights_k * scores_k, the sum for labels that are known, p the
    frequencies in the group and H in [0, 1] their normalised entropy. H is one number for all completions of a prompt,
    so that advantages with the mean of the group as their baseline (GRPO) cancel it; it acts where the baseline is
    wider than the group, or absent. Where the policy's most frequent answer is usually wrong, agreement teaches that
    answer. Source: TTRV, 2025, section 3, arXiv:2510.06783.

    Args:
        weights: by name of the score of the task; weights of 0 leave the labels unseen.
        entropy_coef: weight of the entropy of the answers.
        majority: 1 for the most frequent answer, of which the first counts at a tie, and 0 for others, as in TTRL.
        extract: how an answer is found in a completion, see `mmrl.rewards.extract`.
    """

    entropy_coef: float = 0.75
    majority: bool = False
    extract: str = "text"

    def __post_init__(self) -> None:
        build_extractor(self.extract, "data.reward.extract")

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        """agreement: frequency of the answer, or whether it is the most frequent one; answer_entropy: H."""
        extractor = build_extractor(self.extract)
        answers: dict[int, list[str | None]] = {}
        for episode in episodes:
            answers.setdefault(episode.group, []).append(extractor(str(episode.output)))
        agreement = {group: iter(self._agreement(texts)) for group, texts in answers.items()}
        entropy = {group: answer_entropy(texts) for group, texts in answers.items()}
        return [{"agreement": next(agreement[e.group]), "answer_entropy": entropy[e.group]} for e in episodes]

    def _agreement(self, answers: Sequence[str | None]) -> list[float]:
        shares = answer_shares(answers)
        if not self.majority:
            return shares
        top = answers[max(range(len(shares)), key=shares.__getitem__)]
        return [float(answer is not None and answer == top) for answer in answers]

    def __call__(self, group: Sequence[Episode]) -> Sequence[float]:
        return [
            reward + episode.scores["agreement"] - self.entropy_coef * episode.scores["answer_entropy"]
            for reward, episode in zip(super().__call__(group), group)
        ]
