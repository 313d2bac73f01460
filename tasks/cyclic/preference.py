"""Cyclic preferences among three answers: the oracle and its Nash policy."""

from __future__ import annotations

from collections.abc import Sequence

from mmrl.core.errors import check_interval
from mmrl.core.types import Prompt
from mmrl.rewards.models.oracle import PreferenceOracle

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
        self.advantage = {("a", "b"): s1, ("c", "a"): s2, ("b", "c"): s3}
        total = sum(strengths)
        self.nash = {"a": s3 / total, "b": s2 / total, "c": s1 / total}

    def answers(self, prompt: Prompt) -> Sequence[str]:
        return ANSWERS

    def prefer(self, prompt: Prompt, first: str, second: str) -> float:
        first, second = first.strip(), second.strip()
        if first == second:
            return 0.5
        valid = first in ANSWERS, second in ANSWERS
        if not all(valid):
            return 0.5 + (valid[0] - valid[1]) / 2
        return 0.5 + self.advantage.get((first, second), 0.0) - self.advantage.get((second, first), 0.0)
