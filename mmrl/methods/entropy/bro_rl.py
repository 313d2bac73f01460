"""BroRL: large groups per prompt, and the probability mass of correct answers by sampled and unsampled tokens.

BroRL: Scaling Reinforcement Learning via Broadened Exploration, 2025, arXiv:2510.01180.

- change of the probability of a correct answer by one step, in closed form: `mass_balance`; the evaluator
  `AnswerMass` computes it from the answers to held-out problems
- recipe `bro_rl`: large groups, group mean and batch std, clip-higher, resets of the reference
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.core.errors import check_at_least
from mmrl.core.groups import group_episodes
from mmrl.core.types import Episode
from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.metrics.finished_episodes import count_errors, drop_errors, get_binary_score
from mmrl.evaluation.metrics.support import get_answer


@dataclass(frozen=True)
class MassBalance:
    """First-order change of the probability of correct answers by one gradient step on a softmax over V answers."""

    correct: Tensor  # Q, probability of a correct answer before
    change: Tensor  # of Q, per unit of learning rate as given
    unsampled: Tensor  # part of the change by answers that were not drawn


def mass_balance(
    logits: Tensor,  # [V]
    counts: Tensor,  # [V] draws of each answer, N in all
    is_correct: Tensor,  # [V] bool
    lr: float,
    reward: float = 1.0,
    penalty: float = -1.0,
) -> MassBalance:
    """Change of the mass of correct answers under the surrogate -(1/N) sum_j n_j R_j p_j, to the first order.

    dz_j = (lr / N) p_j (n_j R_j - S) with S = sum_j n_j R_j p_j, R_j the reward of a correct answer and the penalty of
    a wrong one. dQ = (lr / N) [(1 - Q) (R sum_P n p^2 - S sum_P p^2) - Q (W sum_notP n p^2 - S sum_notP p^2)], and the
    part of the answers with n_j = 0 is (lr / N) S (Q sum_(notP, n=0) p^2 - (1 - Q) sum_(P, n=0) p^2), which vanishes
    with growing N. Source: BroRL, 2025, section 3, arXiv:2510.01180.
    """
    if counts.sum() <= 0:
        raise ValueError("mass_balance: no answer was drawn; counts must have a positive sum")
    # (answers,) probabilities, draws and rewards
    p, n = logits.softmax(0), counts.to(logits.dtype)
    rewards = torch.where(is_correct, reward, penalty).to(logits.dtype)
    # scalars Q and S, and (answers,) squared probabilities
    mass, total, square = p[is_correct].sum(), (n * rewards * p).sum(), p.square()
    gain = n * rewards * square - total * square  # of each answer, times N / lr
    rate = lr / n.sum()
    # scalar dQ: terms of correct answers have the factor 1 - Q, those of wrong answers -Q
    change = rate * ((1 - mass) * gain[is_correct].sum() - mass * gain[~is_correct].sum())
    # (answers,) squared probabilities of answers without a draw, the part that vanishes with growing N
    missed = square * (n == 0)
    unsampled = rate * total * (mass * missed[~is_correct].sum() - (1 - mass) * missed[is_correct].sum())
    return MassBalance(mass, change, unsampled)


@dataclass(frozen=True)
class AnswerMass(Evaluator):
    """Mass balance of the answers to held-out problems, for groups of different sizes.

    The frequencies of the final answers in all samples of a problem stand for its probabilities, and each N of its
    samples, one after the other, for the draws of a training step. Means over problems: `correct` (Q), `change@N` (dQ
    per unit of learning rate), `unsampled@N` (its part by answers outside of the N), and `falls@N`, the fraction of
    steps after which a correct answer is less probable.

    Args:
        draws: group sizes N, at most the samples of a problem.
        score_name: name of a score of 0 or 1 that the task gives.
    """

    draws: Sequence[int] = (4, 16)
    score_name: str = "exact"

    def __post_init__(self) -> None:
        if not self.draws:
            raise ValueError("answer_mass.draws is empty; name a number of samples")
        check_at_least(1, "answer_mass", draws=min(self.draws))

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        problems = list(group_episodes(drop_errors(episodes)).values())
        short = min(map(len, problems), default=0)
        if short < max(self.draws):
            raise ValueError(
                f"answer_mass.draws={list(self.draws)}: a problem has {short} samples without an error; raise "
                "data.evaluation.num_samples or lower draws"
            )
        sums: dict[str, list[float]] = {"correct": []}
        for group in problems:
            answers = [(get_answer(episode), get_binary_score(episode, self.score_name)) for episode in group]
            sums["correct"].append(sum(score for _, score in answers) / len(answers))
            for size in self.draws:
                for part in (_balance(answers, start, size) for start in range(0, len(answers) - size + 1, size)):
                    for name in ("change", "unsampled"):
                        sums.setdefault(f"{name}@{size}", []).append(float(getattr(part, name)))
                    sums.setdefault(f"falls@{size}", []).append(float(part.change < 0))
        return {name: sum(each) / len(each) for name, each in sums.items()} | {"errors": count_errors(episodes)}


def _balance(answers: Sequence[tuple[str | None, float]], start: int, size: int) -> MassBalance:
    """Mass balance of a step on `size` of the answers, with the frequencies of all of them as probabilities."""
    kinds = list(dict.fromkeys(answers))
    sample = answers[start : start + size]
    frequencies = torch.tensor([answers.count(kind) for kind in kinds], dtype=torch.float64)
    counts = torch.tensor([sample.count(kind) for kind in kinds])
    return mass_balance(frequencies.log(), counts, torch.tensor([score == 1 for _, score in kinds]), lr=1.0)
