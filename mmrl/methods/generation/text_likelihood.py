"""Likelihood of a task's own texts under a policy: how much of a language model is left after training."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from mmrl.annotators.logprobs import positive_rows, score_rows
from mmrl.core.errors import ConfigError, check_at_least
from mmrl.core.types import Context, Episode, Turn
from mmrl.data.collate import collate
from mmrl.ops.masked import masked_mean
from mmrl.rollouts.offline.demonstrations import demonstration
from mmrl.transforms.base import EpisodeTransform


@dataclass(frozen=True)
class TextLikelihood(EpisodeTransform):
    """Give each episode the scores `text_logprob` and `text_perplexity` of the demonstration of its prompt.

    text_logprob is the mean log-probability of the demonstration's tokens in nats, text_perplexity the exponential of
    its negative. The mean over episodes of the first is the one to compare: the mean of perplexities follows the worst
    texts.

    Args:
        first: number of the first token that counts, from 0.
        end_token: whether the token that ends the text counts.
        rows: texts per forward pass.
    """

    first: int = 0
    end_token: bool = True
    rows: int = 64

    def __post_init__(self) -> None:
        check_at_least(0, "text_likelihood", first=self.first)
        positive_rows(self.rows, "text_likelihood")

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        if not episodes:
            return episodes
        texts = [self._demonstrate(episode, ctx) for episode in episodes]
        batch = collate(texts, ctx.policy)
        mask = batch["action_mask"]
        logprobs = masked_mean(
            score_rows(ctx.policy, batch, lambda out: out.full_logprobs, self.rows, ctx.device), mask, 1
        )
        return [
            replace(episode, scores=self._score(episode, mean)) for episode, mean in zip(episodes, logprobs.tolist())
        ]

    def _score(self, episode: Episode, mean: float) -> dict[str, float]:
        return {**episode.scores, "text_logprob": mean, "text_perplexity": math.exp(-mean)}

    def _demonstrate(self, episode: Episode, ctx: Context) -> Episode:
        """The demonstration of the episode's prompt as an episode of its own."""
        (decisions,) = ctx.task.demonstrations([episode.prompt])
        if len(decisions) != 1:
            raise ConfigError(
                f"text_likelihood: the demonstration of {episode.prompt.key!r} has {len(decisions)} decisions; choose "
                "a task that is answered with one text"
            )
        done = demonstration(*decisions[0], ctx)
        tokens = torch.arange(len(done.action))
        counted = (tokens >= self.first) & (tokens < len(tokens) - (not self.end_token))
        if not counted.any():
            raise ConfigError(
                f"text_likelihood: the demonstration of {episode.prompt.key!r} has {len(tokens)} tokens, of which none "
                f"counts with first={self.first} and end_token={self.end_token}; lower `first`"
            )
        return replace(episode, turns=[Turn(replace(done, action_mask=done.action_mask & counted))])
