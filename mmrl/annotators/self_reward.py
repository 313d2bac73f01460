"""SelfReward: the policy's self-rewards before the update, and their weights in the loss (LaSeR)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from mmrl.annotators.base import Annotator
from mmrl.batch import Batch
from mmrl.ops.self_reward import balanced_weights, self_reward
from mmrl.types import Context


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

    writes = frozenset({"self_reward", "self_reward_weight"})

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        known = {"self_reward_mask", "old_logprobs", "episode_reward"}
        return frozenset(known if self.reference is not None else known | {"ref_logprobs"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        self_reward_mask, right = batch["self_reward_mask"], _right(batch["episode_reward"], batch["self_reward_mask"])
        reference = batch["ref_logprobs"] if self.reference is None else self.reference
        counted = self_reward_mask.any(1)
        mine = (int((right & counted).sum()), int((~right & counted).sum()))
        ones, zeros = map(sum, zip(*ctx.collector.gather([mine])))
        return batch.with_columns(
            self_reward=self_reward(batch["old_logprobs"], reference, self_reward_mask, self.scale),
            self_reward_weight=balanced_weights(right, counted, ones, zeros),
        )

    def metrics(self, batch: Batch, ctx: Context) -> dict[str, float]:
        """Mean self-reward of right and of wrong completions, on the rows to learn from."""
        counted = batch["self_reward_mask"].any(1)
        right = _right(batch["episode_reward"], batch["self_reward_mask"])
        parts = ctx.collector.gather([[batch["self_reward"][counted & of].double() for of in (right, ~right)]])
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
