"""SelfRewardToken: append a reserved token whose log-probability is the policy's self-reward (LaSeR)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from mmrl.columns import COLUMNS, pad_value
from mmrl.transforms.base import EpisodeTransform
from mmrl.types import Completion, Context, Episode, Turn


@dataclass(frozen=True)
class SelfRewardToken(EpisodeTransform):
    """Appends one token to every completed answer; it is scored with the answer and is no choice of the policy.

    The column `self_reward_mask` says where it stands. A truncated answer has none.
    Source: LaSeR: Reinforcement Learning with Last-Token Self-Rewarding, 2025, arXiv:2510.14943.

    Args:
        token: of the policy's vocabulary, one that answers never use.
    """

    token: str

    writes = frozenset({"self_reward_mask"})

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        number = token_id(ctx.policy, self.token)
        return [replace(episode, turns=self._turns(episode, number)) for episode in episodes]

    def _turns(self, episode: Episode, number: int) -> list[Turn]:
        ended = len(episode.turns) - 1 if episode.ended == "done" else None
        return [
            replace(turn, completion=_append_token(turn.completion, number if step == ended else None))
            for step, turn in enumerate(episode.turns)
        ]


def token_id(policy: Any, token: str) -> int:
    """The id of a token in the policy's vocabulary."""
    tokenizer = getattr(policy, "tokenizer", None)
    if tokenizer is None:
        raise ValueError(f"token {token!r}: {type(policy).__name__} has no tokenizer; this is for policies that write")
    number = tokenizer.convert_tokens_to_ids(token)
    if number is None or tokenizer.convert_ids_to_tokens(number) != token:
        known = tokenizer.all_special_tokens
        raise ValueError(f"token {token!r} is not one of the policy's vocabulary; its special ones are {known}")
    return number


def _append_token(done: Completion, number: int | None) -> Completion:
    if "packed_support_ids" in done.extra:
        raise ValueError(
            "truncated sampling would cut off the self-reward token; set sampling.top_k=0, top_p=1, min_p=0"
        )
    if number is None:
        return replace(done, extra={**done.extra, "self_reward_mask": torch.zeros(len(done.action), dtype=torch.bool)})
    length = len(done.action)
    extra = {name: _longer(part, pad_value(name)) if per_choice(name) else part for name, part in done.extra.items()}
    return replace(
        done,
        action=_longer(done.action, number),
        behavior_logprobs=_longer(done.behavior_logprobs, 0),
        action_mask=_longer(done.action_mask, False),
        extra={**extra, "self_reward_mask": torch.arange(length + 1) == length},
    )


def per_choice(column: str) -> bool:
    """Whether it has an entry for every choice."""
    return column in COLUMNS and COLUMNS[column].shape.startswith("[N, T")


def _longer(part: Tensor, value: float) -> Tensor:
    return torch.cat([part, part.new_full((1, *part.shape[1:]), value)])
