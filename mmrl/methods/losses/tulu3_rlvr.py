"""Tulu 3 RLVR: a constant reward for a verified answer, and a penalty for one that does not end.

Lambert et al., "Tulu 3: Pushing Frontiers in Open Language Model Post-Training", 2024, arXiv:2411.15124, section 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmrl.core.types import Episode
from mmrl.rewards.compose import WeightedSum


@dataclass(frozen=True)
class VerifiableReward(WeightedSum):
    """Reward of an episode: alpha if the verifier passes else 0, or `unfinished` where the answer was cut off.

    alpha is the weight of the verifier's score, {exact: 10.0}. Source: Tulu 3, 2024, equation 8 (alpha = 10), and the
    penalty of answers without an end-of-sequence token, arXiv:2411.15124.

    Args:
        weights: by name of the score.
        unfinished: reward of an answer without an end-of-sequence token.
    """

    unfinished: float = -10.0

    def __call__(self, group: Sequence[Episode]) -> Sequence[float]:
        rewards = super().__call__(group)
        return [self.unfinished if e.ended == "length" else reward for e, reward in zip(group, rewards)]
