"""Optima: the reward of a dialogue by its answer, its tokens and how readable its messages are."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from mmrl.annotators.logprobs import score_rows
from mmrl.core.errors import ConfigError, check_at_least
from mmrl.core.types import Context, Episode, Prompt, Turn
from mmrl.data.collate import collate
from mmrl.ops.masked import masked_mean
from mmrl.rewards.base import Reward
from mmrl.rewards.compose import WeightedSum
from mmrl.rollouts.offline.demonstrations import demonstrated_choices

UNREADABLE = -1.0
"""Readability of a dialogue without messages or with too many tokens."""


def combine(task: float, tokens: float, most: float, readability: float, token_weight: float = 0.6) -> float:
    """R = R_task - l_tok tokens / most + readability, with `most` the most tokens of a dialogue of the group.

    Source: Optima, 2024, equation 1, arXiv:2410.08115.
    """
    return task - token_weight * (tokens / most if most else 0.0) + readability


def measure_readability(
    nlls: Sequence[float], tokens: float, weight: float = 0.7, max_tokens: int | None = 500
) -> float:
    """l_read / L, with L the largest mean NLL of a message in nats; -1 without messages or above `max_tokens` tokens.

    Source: Optima, 2024, equation 1, arXiv:2410.08115; the -1 is of the released code, reward/reward.py.
    """
    if not nlls or (max_tokens is not None and tokens > max_tokens):
        return UNREADABLE
    return weight / max(nlls)


class OptimaReward(Reward):
    """Reward of Optima: the weighted scores of the answer less the share of tokens plus readability.

    The share of tokens is compared with the longest dialogue of the group. A row of `DialogueTree` has the value of its
    message, the mean reward of the dialogues through it. Further scores of a dialogue: `tokens`, and `readability`, the
    third part. Source: Optima, 2024, equation 1, arXiv:2410.08115.

    Args:
        weights: of the task's scores, by name.
        token_weight: l_tok.
        readability_weight: l_read; 0 asks no model.
        max_tokens: of a dialogue that can be readable.
        model: the base model, by its name in `model.frozen_models`.
        question: the user's message to which the base model's messages are replies.
        rows: messages per forward pass.
    """

    def __init__(
        self,
        weights: dict[str, float] | None = None,
        token_weight: float = 0.6,
        readability_weight: float = 0.7,
        max_tokens: int | None = 500,
        model: str = "base",
        question: str = "",
        rows: int = 64,
    ):
        check_at_least(0, "reward", token_weight=token_weight, readability_weight=readability_weight)
        check_at_least(1, "reward", rows=rows, **({} if max_tokens is None else {"max_tokens": max_tokens}))
        self.weights = {"f1": 1.0} if weights is None else weights
        self.token_weight, self.readability_weight, self.max_tokens = token_weight, readability_weight, max_tokens
        self.model, self.question, self.rows = model, question, rows
        self.base: Any = None
        self.ctx: Context | None = None

    def bind(self, ctx: Context) -> OptimaReward:
        """Return the reward that asks this context's base model.

        Raises:
            ConfigError: there is no such model.
        """
        if self.readability_weight and self.model not in ctx.models:
            raise ConfigError(
                f"reward.model={self.model!r} is no model of the run; name it under model.frozen_models, as in "
                f"+model.frozen_models.{self.model}={{_target_: mmrl.policies.text.policy.TextPolicy, path: FOLDER}}, "
                "or set reward.readability_weight=0"
            )
        bound = copy.copy(self)
        bound.base, bound.ctx = ctx.models[self.model] if self.readability_weight else None, ctx
        return bound

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        dialogues = [episode for episode in episodes if "value" not in episode.info]
        missing = [each for each in dialogues if self.readability_weight and "nlls" not in each.info]
        nlls = iter(self._score([text for episode in missing for text in episode.info["messages"]]))
        for episode in missing:
            episode.info["nlls"] = [next(nlls) for _ in episode.info["messages"]]
        return [{} if "value" in episode.info else self._measure(episode) for episode in episodes]

    def _measure(self, episode: Episode) -> dict[str, float]:
        tokens = float(episode.tokens)
        if not self.readability_weight:
            return {"tokens": tokens, "readability": 0.0}
        nlls = episode.info["nlls"]
        return {
            "tokens": tokens,
            "readability": measure_readability(nlls, tokens, self.readability_weight, self.max_tokens),
        }

    def _score(self, texts: Sequence[str]) -> list[float]:
        """Mean NLL of each message in nats under the base model, with the token that ends it."""
        if not texts:
            return []
        if self.base is None or self.ctx is None:
            raise ConfigError("reward.model is a model of a run, and is asked outside of its rollouts")
        raw = {"messages": ({"role": "user", "content": self.question},), "images": ()}
        distinct = list(dict.fromkeys(texts))
        rows = []
        for number, text in enumerate(distinct):
            done = demonstrated_choices(self.base.encode_demonstration(raw, text), self.base.encode(raw), text)
            rows.append(Episode(Prompt(f"message/{number}"), number, 0, [Turn(done)]))
        batch = collate(rows, self.base)
        logprobs = score_rows(self.base, batch, lambda out: out.full_logprobs, self.rows, self.ctx.device)
        means = (-masked_mean(logprobs, batch["action_mask"], 1)).tolist()
        by_text = dict(zip(distinct, means))
        return [by_text[text] for text in texts]

    def __call__(self, group: Sequence[Episode]) -> Sequence[float]:
        most = max((episode.scores.get("tokens", 0.0) for episode in group), default=0.0)
        tasks = WeightedSum(self.weights)(group)
        return [
            episode.info["value"]
            if "value" in episode.info
            else combine(task, episode.scores["tokens"], most, episode.scores["readability"], self.token_weight)
            for episode, task in zip(group, tasks)
        ]
