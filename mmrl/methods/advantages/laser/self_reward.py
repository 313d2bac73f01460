"""LaSeR: last-token self-reward, the log-ratio of a reserved token after the answer, and its loss.

LaSeR: Reinforcement Learning with Last-Token Self-Rewarding, 2025, arXiv:2510.14943.

- s = scale (log pi(z | x, y) - log ref(z | x, y)) for the token z after the answer y: `self_reward`
- class weights w with which right and wrong answers count alike: `balanced_weights`
- the token in the rows: `SelfRewardToken`; s and w before the update: `SelfReward`
- the loss w (s - r)^2 beside that of the policy: `SelfRewardLoss`
- advantages (1 - m) A + m B, with B those of s: `MixedAdvantage`
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from mmrl.annotators.base import Annotator
from mmrl.core.batch import Batch
from mmrl.core.columns import Column, pad_value, per_choice, register_columns
from mmrl.core.errors import check_at_least, check_fraction
from mmrl.core.types import Completion, Context, Episode, PolicyOutput, Turn
from mmrl.objectives.objective import Term
from mmrl.ops.advantage import group_advantage, group_std
from mmrl.ops.masked import zero_outside
from mmrl.transforms.base import EpisodeTransform

register_columns(
    {
        "self_reward_weight": Column("[N]", "1", "LaSeR: weight of the row's self-reward in a loss, 0 without one"),
        "self_reward": Column(
            "[N]", "reward", "LaSeR: reward that the policy's self-reward token implies, before the update"
        ),
    }
)


def self_reward(
    logprobs: Tensor,  # [N, T] nats
    reference: Tensor | float,  # [N, T] nats, or the mean under the reference
    self_reward_mask: Tensor,  # [N, T] bool, True at most once in a row
    scale: float,
) -> Tensor:  # [N], 0 for rows without the token
    """Self-reward s = scale (log pi(z | x, y) - reference): the implicit reward of the completion, from one token.

    Source: LaSeR: Reinforcement Learning with Last-Token Self-Rewarding, 2025, arXiv:2510.14943.
    """
    return scale * zero_outside(logprobs - reference, self_reward_mask).sum(1)


def balanced_weights(
    positive: Tensor,  # [N] bool
    counted: Tensor,  # [N] bool
    ones: int,
    zeros: int,
) -> Tensor:  # [N]
    """Class weights n / (2 n_class), with which both classes count alike; 0 for rows that do not count.

    Args:
        ones: rows that count and are positive, of all processes.
        zeros: rows that count and are not.
    """
    n = ones + zeros
    weights = torch.where(positive, n / (2 * max(ones, 1)), n / (2 * max(zeros, 1)))
    return torch.where(counted, weights, 0.0)


@dataclass(frozen=True)
class SelfRewardToken(EpisodeTransform):
    """Appends one token to every completed answer; it is scored with the answer and is no choice of the policy.

    The column `self_reward_mask` says where it stands. A truncated answer has none.
    Source: LaSeR: Reinforcement Learning with Last-Token Self-Rewarding, 2025, arXiv:2510.14943.

    Args:
        token: of the policy's vocabulary, one that answers never use.
    """

    token: str

    def writes(self) -> frozenset[str]:
        return frozenset({"self_reward_mask"})

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
        special_tokens = tokenizer.all_special_tokens
        raise ValueError(
            f"token {token!r} is not one of the policy's vocabulary; its special ones are {special_tokens}"
        )
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


def _longer(part: Tensor, value: float) -> Tensor:
    return torch.cat([part, part.new_full((1, *part.shape[1:]), value)])


@dataclass(frozen=True)
class SelfReward(Annotator):
    """Self-rewards of the completions, and class weights with which right and wrong ones count alike.

    Args:
        scale: rewards per nat.
        reference: log-probability of the token in the reference, the same everywhere, in nats; none takes it from
            `ref_logprobs`.
    """

    scale: float = 0.1
    reference: float | None = None

    def writes(self) -> frozenset[str]:
        return frozenset({"self_reward", "self_reward_weight"})

    def reads(self) -> frozenset[str]:
        columns = {"self_reward_mask", "old_logprobs", "episode_reward"}
        return frozenset(columns if self.reference is not None else columns | {"ref_logprobs"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        self_reward_mask, right = batch["self_reward_mask"], _right(batch["episode_reward"], batch["self_reward_mask"])
        reference = batch["ref_logprobs"] if self.reference is None else self.reference
        counted = self_reward_mask.any(1)
        local_counts = (int((right & counted).sum()), int((~right & counted).sum()))
        ones, zeros = map(sum, zip(*ctx.collector.gather([local_counts])))
        return batch.with_columns(
            self_reward=self_reward(batch["old_logprobs"], reference, self_reward_mask, self.scale),
            self_reward_weight=balanced_weights(right, counted, ones, zeros),
        )

    def metrics(self, batch: Batch, ctx: Context) -> dict[str, float]:
        """Mean self-reward of right and of wrong completions, on the rows to learn from."""
        counted = batch["self_reward_mask"].any(1)
        right = _right(batch["episode_reward"], batch["self_reward_mask"])
        parts = ctx.collector.gather([[batch["self_reward"][counted & mask].double() for mask in (right, ~right)]])
        sums = [(sum(float(part[k].sum()) for part in parts), sum(len(part[k]) for part in parts)) for k in (0, 1)]
        return {name: total / count for name, (total, count) in zip(("right", "wrong"), sums) if count}


def _right(reward: Tensor, self_reward_mask: Tensor) -> Tensor:
    odd = self_reward_mask.any(1) & (reward != 0) & (reward != 1)
    if odd.any():
        raise ValueError(
            f"annotator self_reward: answers are right or wrong, but one earned {float(reward[odd][0])}; "
            "let data.reward be 0 or 1"
        )
    return reward == 1


@dataclass(frozen=True)
class SelfRewardLoss(Term):
    """Squared error of the self-reward against the verified reward, per row: w (s - r)^2.

    s = scale (logprob - reference) of the self-reward token. Source: LaSeR, 2025, arXiv:2510.14943.

    Args:
        scale: rewards per nat.
        reference: log-probability of the token in the reference, the same everywhere, in nats; none takes it from
            `ref_logprobs`.
    """

    scale: float = 0.1
    reference: float | None = None

    def reads(self) -> frozenset[str]:
        columns = {"self_reward_mask", "self_reward_weight", "episode_reward"}
        return frozenset(columns if self.reference is not None else columns | {"ref_logprobs"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        reference = batch["ref_logprobs"] if self.reference is None else self.reference
        score = self_reward(out.logprobs, reference, batch["self_reward_mask"], self.scale)
        return batch["self_reward_weight"] * (score - batch["episode_reward"]).square()


@dataclass(frozen=True)
class MixedAdvantage(Annotator):
    """Mixed advantages (1 - weight) A + weight B, B the group advantage of another score: (s - mean) / (std + 1e-6).

    s is the sum of the column over an episode's rows, clipped to [0, 1]. Groups in which its sample standard deviation
    is at most `min_std` keep A. Source: LaSeR, 2025, arXiv:2510.14943.

    Args:
        column: the score, per row.
        weight: of B.
        min_std: sample standard deviation of s up to which a group keeps A.
        start_iteration: first iteration in which advantages are mixed.
    """

    column: str
    weight: float = 0.1
    min_std: float = 0.1
    start_iteration: int = 0

    def __post_init__(self) -> None:
        check_fraction("mixed_advantage", weight=self.weight)
        check_at_least(0, "mixed_advantage", min_std=self.min_std)

    def writes(self) -> frozenset[str]:
        return frozenset({"advantages"})

    def reads(self) -> frozenset[str]:
        return frozenset({"advantages", "action_mask", "group", "episode", self.column})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        advantages = zero_outside(batch["advantages"], batch["action_mask"])
        ids, entry = batch["episode"].unique(return_inverse=True)
        score = torch.zeros(len(ids)).index_add(0, entry, batch[self.column].float()).clamp(0, 1)
        group = batch["group"].new_zeros(len(ids)).scatter(0, entry, batch["group"])
        other = group_advantage(score, group, "mean", "sample", 1e-6)
        informative = (group_std(score, group, "sample") > self.min_std) & (ctx.iteration >= self.start_iteration)
        mixed = (1 - self.weight) * advantages + self.weight * other[entry][:, None]
        mask = informative[entry][:, None] & batch["action_mask"]
        return batch.with_columns(advantages=torch.where(mask, mixed, advantages))
