"""Role advantages: compare rows across prompts, with one baseline per role or kind of problem."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from mmrl.annotators.base import Annotator
from mmrl.core.batch import Batch
from mmrl.core.errors import check_at_least
from mmrl.core.types import Context
from mmrl.ops.advantage import Scale, group_advantage


@dataclass(frozen=True)
class RoleAdvantage(Annotator):
    """Reward of a row minus the mean of its baseline group (a role or kind of problem), equal for all its choices.

    A = (r - mean) / (std + epsilon) over the rows, of all processes, that agree in every column of `group_by`: one role
    and kind of problem (task-relative REINFORCE++ of Absolute Zero), or one turn of the completions of one prompt. The
    reward of a row is for this row alone: nothing flows back from later ones.

    Args:
        group_by: columns of whole numbers or bools, one entry per row.
        scale: divide by the group's sample standard deviation.
        epsilon: added to it.
    """

    group_by: tuple[str, ...] = ("baseline_group",)
    scale: bool = True
    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        object.__setattr__(self, "group_by", tuple(self.group_by))  # configs give lists
        if not self.group_by:
            raise ValueError("role_advantage.group_by is empty: name the columns in which compared rows agree")
        check_at_least(0, "role_advantage", epsilon=self.epsilon)

    def writes(self) -> frozenset[str]:
        return frozenset({"advantages"})

    def reads(self) -> frozenset[str]:
        return frozenset({"reward", "action_mask", *self.group_by})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        reward, mask = batch["reward"].float(), batch["action_mask"]
        if not reward.isfinite().all():
            raise ValueError("reward is not finite in some rows; check data.reward and the rewards of the rollout")
        counted = mask.any(1)  # a row without a choice has nothing to be compared for
        keys = [tuple(row) for row in zip(*(batch[name].tolist() for name in self.group_by))]
        local_pairs = [(key, float(r)) for key, r, has_choice in zip(keys, reward, counted) if has_choice]
        everyone = sorted(ctx.collector.gather(local_pairs))  # in one order, however many processes there are
        number = {key: i for i, key in enumerate(dict.fromkeys(key for key, _ in everyone))}
        baseline_group = torch.tensor([number[key] for key, _ in everyone], dtype=torch.long)
        rewards = torch.tensor([r for _, r in everyone], dtype=torch.float64)
        scale: Scale | None = "sample" if self.scale else None
        advantage = group_advantage(rewards, baseline_group, "mean", scale, self.epsilon)
        by_pair = dict(zip(everyone, advantage.tolist()))  # equal rewards in one group have equal advantages
        out = torch.tensor([by_pair.get((key, float(r)), 0.0) for key, r in zip(keys, reward)], dtype=torch.float32)
        return batch.with_columns(advantages=torch.where(mask, out[:, None], 0.0))
