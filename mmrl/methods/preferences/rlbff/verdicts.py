"""RLBFF's generative reward model: it writes reasons, then yes or no about a principle, and is trained by GRPO.

RLBFF: Binary Flexible Feedback to Bridge Between Human Feedback and Verifiable Rewards, 2025, arXiv:2509.21319.

- s = log p(yes) - log p(no) of the verdict after the sampled reasons; the reward is s where the label is yes, else -s:
  `signed_odds`, `VerdictReward`
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mmrl.core.errors import ConfigError, check_positive
from mmrl.core.types import Episode
from mmrl.rewards.compose import WeightedSum

SCORE = "odds"
"""Name of the score."""


def signed_odds(logprob: float, right: bool, limit: float) -> float:
    """Log-odds of the right verdict, from the log-prob of the written one: log p - log(1 - p) where it is right.

    p is the probability of the written word, and that of the other word is taken as 1 - p. Where the written one is
    wrong the sign is the other one. In [-limit, limit].
    Source: RLBFF, 2025, arXiv:2509.21319, s = log p(yes) - log p(no), and -s for a label of no.

    Args:
        logprob: of the written verdict, in nats.
        right: whether it is the label.
        limit: largest absolute value, since a decided judge has odds without bound.
    """
    other = -math.expm1(logprob)  # 1 - p
    odds = limit if other <= 0 else min(max(logprob - math.log(other), -limit), limit)
    return odds if right else -odds


@dataclass(frozen=True)
class VerdictReward(WeightedSum):
    """Reward of a reply that ends with a verdict: sum_k weights_k * scores_k, with the score `odds` among them.

    `odds` are the `signed_odds` of the reply's last token before its end; 0 for a reply that cannot be read, or that
    was cut off.

    Args:
        weights: by name of the score.
        limit: largest absolute value of `odds`, in nats.
        right: name of the score that is 1 for the right verdict.
        readable: name of the score that is 1 for a reply that can be read.
    """

    limit: float = 5.0
    right: str = "exact"
    readable: str = "format"

    def __post_init__(self) -> None:
        check_positive("reward", limit=self.limit)
        if SCORE not in self.weights:
            raise ConfigError(f"reward.weights has no {SCORE!r}, and names {list(self.weights)}; add {SCORE}: 1.0")

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        return [{SCORE: self._score(episode)} for episode in episodes]

    def _score(self, episode: Episode) -> float:
        if not episode.scores[self.readable] or episode.ended != "done":
            return 0.0
        logprobs = episode.turns[-1].completion.behavior_logprobs  # [T], the last one of the end
        if len(logprobs) < 2:
            return 0.0
        return signed_odds(float(logprobs[-2]), bool(episode.scores[self.right]), self.limit)
