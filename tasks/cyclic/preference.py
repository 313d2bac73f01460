"""Cyclic preferences among three answers: the oracle and its Nash policy."""

from __future__ import annotations

from collections.abc import Sequence

from mmrl.core.errors import check_interval
from mmrl.core.types import Prompt
from mmrl.rewards.models.oracle import PreferenceOracle
from tasks.cyclic.cycle import Cycle

ANSWERS = ("a", "b", "c")


class CyclicOracle(PreferenceOracle):
    """P(a over b) = 1/2 + s1, P(c over a) = 1/2 + s2, P(b over c) = 1/2 + s3; one of the answers beats any other text.

    Args:
        strengths: s1, s2, s3, above 0 and at most 1/2.
    """

    def __init__(self, strengths: Sequence[float] = (0.2, 0.3, 0.4)):
        if len(strengths) != 3:
            raise ValueError(f"oracle.strengths must be three numbers, got {list(strengths)}")
        for number, strength in enumerate(strengths):
            check_interval("oracle", "(0, 0.5]", **{f"strengths[{number}]": strength})
        s1, s2, s3 = strengths
        self.cycle = Cycle((0.5 + s1, 0.5 + s3, 0.5 + s2))
        self.nash = dict(zip(ANSWERS, self.cycle.nash))

    def answers(self, prompt: Prompt) -> Sequence[str]:
        return ANSWERS

    def prefer(self, prompt: Prompt, first: str, second: str) -> float:
        first, second = (ANSWERS.index(text.strip()) if text.strip() in ANSWERS else None for text in (first, second))
        return self.cycle.prefer(first, second)
