"""Reward of a scorer that the run holds as a frozen model, trained by a start stage or read from a path."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from typing import Any, Literal

import torch

from mmrl.core.errors import ConfigError, check_at_least
from mmrl.core.types import Context, Episode
from mmrl.rewards.base import Reward
from mmrl.rewards.compose import WeightedSum
from mmrl.rewards.extract import remove_thoughts

SCORE = "reward_model"
"""Name of the score."""


class ScorerReward(Reward):
    """Reward of an episode: sum_k weights_k * scores_k, with `reward_model`, the score of a frozen model, among them.

    Args:
        model: its name in `model.frozen_models`, a `ScoringPolicy`.
        thoughts: `scored` with the response; `removed`, so that the model reads what follows them; or `required`: an
            answer that is not one closed thought with a response after it is scored as an empty response.
        weights: by name of the score.
        batch_size: answers per forward pass.
    """

    def __init__(
        self,
        model: str = "reward_model",
        thoughts: Literal["scored", "removed", "required"] = "scored",
        weights: dict[str, float] | None = None,
        batch_size: int = 64,
    ):
        check_at_least(1, "reward", batch_size=batch_size)
        if thoughts not in ("scored", "removed", "required"):
            raise ValueError(f"reward.thoughts must be scored, removed or required, got {thoughts!r}")
        self.model, self.thoughts, self.batch_size = model, thoughts, batch_size
        self.weights = weights or {SCORE: 1.0}
        self.scorer: Any = None

    def bind(self, ctx: Context) -> ScorerReward:
        """Return the reward that asks this context's model.

        Raises:
            ConfigError: there is no such model.
        """
        if self.model not in ctx.models:
            raise ConfigError(
                f"reward.model={self.model!r} is no model of the run; name a scorer under model.frozen_models, as in "
                f"+model.frozen_models.{self.model}={{_target_: mmrl.policies.text.scorer.ScoringPolicy, path: FOLDER}}"
            )
        bound = copy.copy(self)
        bound.scorer = ctx.models[self.model]
        return bound

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        if self.scorer is None:
            raise ConfigError("reward.model is a model of a run, and is asked outside of its rollouts")
        results: list[float] = []
        for start in range(0, len(episodes), self.batch_size):
            rows = [self.scorer.encode(self._read(episode)) for episode in episodes[start : start + self.batch_size]]
            columns = {name: column.to(self.scorer.device) for name, column in self.scorer.collate(rows).items()}
            with torch.no_grad():
                results += self.scorer.scores(columns).tolist()
        return [{SCORE: score} for score in results]

    def __call__(self, group: Sequence[Episode]) -> Sequence[float]:
        return WeightedSum(self.weights)(group)

    def _read(self, episode: Episode) -> dict[str, Any]:
        """What the scorer reads of an episode."""
        if not isinstance(episode.output, str):
            raise ValueError(f"reward.model reads texts, and {episode.prompt.key!r} was answered {episode.output!r}")
        text = response_of(episode.output, self.thoughts)
        return {"messages": list(episode.prompt.messages), "answer": text, "tools": list(episode.prompt.tools) or None}


def response_of(text: str, thoughts: str) -> str:
    """The part of an answer that a reward model reads: all of it, or what follows the thought; see `ScorerReward`."""
    if thoughts == "scored":
        return text
    if thoughts == "required" and not re.fullmatch(
        r"(?s)\s*<think>(?:(?!</?think>).)*</think>(?:(?!</?think>).)*", text
    ):
        return ""
    return (remove_thoughts(text) or "").strip()
