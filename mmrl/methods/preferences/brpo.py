"""BRPO: advantages of +1 and -1 from a pairwise judge's comparison with one answer of the group itself.

Writing-Zero: Bridge the Gap Between Non-verifiable Problems and Verifiable Rewards, 2025, arXiv:2506.00103.

- a generative judge grades each answer beside the bootstrapped reference: `BootstrappedReference`
- R_i = 1 where s_i > s_ref, else -1; R_ref = 0; A_i = R_i, without a baseline and without a scale
- groups whose |sum_i R_i| / G is too large are sampled anew: `skew`, `BalancedGroups`
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mmrl.core.errors import check_fraction
from mmrl.core.types import Episode
from mmrl.rewards.judges.base import JudgeForm, NoAnswer
from mmrl.rewards.judges.graded import AnswerGrader, SheetGrader
from mmrl.rewards.judges.questions import Question, answer_of
from mmrl.transforms.dynamic_sampling import DynamicSampling


@dataclass(frozen=True)
class BootstrappedReference(JudgeForm):
    """Score `judge` of an answer: 1 if it beats a randomly picked answer of its own group, else -1; that one has 0.

    With both orders an answer wins only where it has the higher grade in each, because judges prefer a place. The pick
    is a hash of the prompt and of the group's answers. Source: Writing-Zero, 2025, section 3.3, arXiv:2506.00103.

    Args:
        grader: asks for the grades of two answers.
        both_orders: ask twice, with the answers exchanged.
        neutral: equal grades, and orders that contradict each other, are 0; otherwise they are no win, -1.
        name: of the score.
    """

    grader: AnswerGrader = field(default_factory=SheetGrader)
    both_orders: bool = True
    neutral: bool = False
    name: str = "judge"

    def pick(self, group: Sequence[Episode]) -> int:
        """Number of the reference in its group."""
        texts = [group[0].prompt.key, *map(answer_of, group)]
        digest = hashlib.blake2b("\0".join(texts).encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return int.from_bytes(digest, "big") % len(group)

    def ask(self, group: Sequence[Episode]) -> list[Question]:
        reference, questions = self.pick(group), []
        for i, episode in enumerate(group):
            if i != reference:
                pair = [answer_of(episode), answer_of(group[reference])]
                orders = [pair, pair[::-1]] if self.both_orders else [pair]
                questions += [self.grader.ask(episode, order) for order in orders]
        return questions

    def combine(self, group: Sequence[Episode], verdicts: Sequence[Any]) -> list[dict[str, float] | NoAnswer]:
        results: list[dict[str, float] | NoAnswer] = []
        reference, rest = self.pick(group), iter(verdicts)
        for i in range(len(group)):
            leads = [] if i == reference else self._leads(rest)
            failure = next((lead for lead in leads if isinstance(lead, NoAnswer)), None)
            if failure is not None:
                results.append(failure)
            else:
                results.append({self.name: 0.0 if i == reference else self._compare(leads)})
        return results

    def _leads(self, verdicts: Any) -> list[Any]:
        """Grade of the answer minus that of the reference in each order, or a NoAnswer."""
        first = next(verdicts)
        leads = [first if isinstance(first, NoAnswer) else first[0] - first[1]]
        if self.both_orders:
            second = next(verdicts)
            leads.append(second if isinstance(second, NoAnswer) else second[1] - second[0])
        return leads

    def _compare(self, leads: Sequence[float]) -> float:
        if all(lead > 0 for lead in leads):
            return 1.0
        return 0.0 if self.neutral and not all(lead < 0 for lead in leads) else -1.0

    def count(self, verdicts: Sequence[Any]) -> dict[str, int]:
        if not self.both_orders:
            return {}
        rest = iter(verdicts)
        pairs = [self._leads(rest) for _ in range(len(verdicts) // 2)]
        readable = [pair for pair in pairs if not any(isinstance(lead, NoAnswer) for lead in pair)]
        return {
            "inconsistent": sum((first > 0) - (first < 0) != (second > 0) - (second < 0) for first, second in readable)
        }


def skew(rewards: Sequence[float]) -> float:
    """Skew of a group: |sum_i R_i| / G. Source: Writing-Zero, 2025, section 3.3, arXiv:2506.00103."""
    return abs(sum(rewards)) / len(rewards)


@dataclass(frozen=True)
class BalancedGroups(DynamicSampling):
    """Dynamic sampling by skew: drops groups whose |sum R| / G exceeds a bound, and samples further prompts.

    Args:
        num_groups: how many to keep, over all processes; None keeps as many as arrive here.
        max_rounds: how many times to sample what is missing.
        score_name: "reward", or the name of a score.
        tolerance: largest difference of rewards that counts as equal.
        max_skew: largest |sum R| / G of a group that is trained on.
    """

    max_skew: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fraction("balanced_groups", max_skew=self.max_skew)

    def _with_variance(self, groups: dict[int, list[Episode]]) -> dict[int, list[Episode]]:
        varied = super()._with_variance(groups)
        return {key: group for key, group in varied.items() if skew([e.reward for e in group]) <= self.max_skew}
