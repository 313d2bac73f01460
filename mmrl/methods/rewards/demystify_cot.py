"""Demystifying Long CoT: cosine length reward, and a repetition penalty per token with its own discount factor.

Demystifying Long Chain-of-Thought Reasoning in LLMs, 2025, arXiv:2502.03373.

- cosine reward (section 4.2): `CosineReward`, by `mmrl.rewards.shaping.cosine_length`
- repetition penalty (algorithm 1): `repeated_tokens`, as rewards per token `RepetitionRewards`
- a discount for each reward: `mmrl.annotators.reward_streams.RewardStreams`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mmrl.core.errors import check_at_least
from mmrl.core.types import Context, Episode, Turn
from mmrl.rewards.compose import WeightedSum
from mmrl.rewards.shaping import cosine_length
from mmrl.transforms.base import EpisodeTransform


@dataclass(frozen=True)
class CosineReward(WeightedSum):
    """Reward of an episode: sum_k weights_k * scores_k plus the reward by its length, the score `cosine`.

    It falls or rises along half a cosine with the length of right and of wrong answers: see `cosine_length`.

    Args:
        weights: by name of the score, for the other scores.
        max_tokens: length from which on an answer earns `exceeded`.
        correct: reward of a right answer of length 0, and of one of length `max_tokens`.
        wrong: of a wrong answer; the paper's makes short wrong answers the worst.
        exceeded: reward of answers that are too long.
    """

    max_tokens: int = 16_384
    correct: tuple[float, float] = (2.0, 1.0)
    wrong: tuple[float, float] = (-10.0, 0.0)
    exceeded: float = -10.0

    def __post_init__(self) -> None:
        check_at_least(1, "reward", max_tokens=self.max_tokens)

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        limits = self.max_tokens, self.correct, self.wrong, self.exceeded
        return [{"cosine": cosine_length(episode.tokens, episode.scores["exact"], *limits)} for episode in episodes]

    def __call__(self, group: Sequence[Episode]) -> Sequence[float]:
        return [reward + episode.scores["cosine"] for reward, episode in zip(super().__call__(group), group)]


def repeated_tokens(ids: Sequence[int], ngram: int) -> list[bool]:
    """Whether each token belongs to an n-gram that occurred earlier in the sequence.

    Source: Demystifying Long Chain-of-Thought Reasoning in LLMs, 2025, algorithm 1, arXiv:2502.03373.
    """
    ngrams: set[tuple[int, ...]] = set()
    repeated = [False] * len(ids)
    for start in range(len(ids) - ngram + 1):
        gram = tuple(ids[start : start + ngram])
        if gram in ngrams:
            repeated[start : start + ngram] = [True] * ngram
        ngrams.add(gram)
    return repeated


@dataclass(frozen=True)
class RepetitionRewards(EpisodeTransform):
    """Write `token_rewards`: a penalty at each sampled token of an n-gram that occurred earlier in its row.

    It is added to the rewards per token that a row carries already.

    Args:
        ngram: length of the n-grams in tokens.
        penalty: reward of a repeated token.
    """

    ngram: int = 40
    penalty: float = -0.05

    def __post_init__(self) -> None:
        check_at_least(1, "repetition_rewards", ngram=self.ngram)

    def writes(self) -> frozenset[str]:
        return frozenset({"token_rewards"})

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        return [replace(episode, turns=[self._penalise(turn) for turn in episode.turns]) for episode in episodes]

    def _penalise(self, turn: Turn) -> Turn:
        done = turn.completion
        if done.action.dim() != 1 or done.action.is_floating_point():
            raise ValueError("repetition_rewards is for tokens of text, and the policy's choices are none")
        rewards: Tensor = done.extra.get("token_rewards", torch.zeros(len(done.action))).clone()
        indices = done.action_mask.nonzero().flatten()
        repeated = torch.tensor(repeated_tokens(done.action[indices].tolist(), self.ngram), dtype=torch.bool)
        rewards[indices[repeated]] += self.penalty
        return turn.with_columns(token_rewards=rewards)
