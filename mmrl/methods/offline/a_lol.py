"""A-LoL: offline policy gradient with whole answers as single actions, on answers with a positive advantage.

Leftover Lunch: Advantage-based Offline Reinforcement Learning for Language Models, 2023, arXiv:2305.14718.

- the loss: `OfflinePolicyGradient`; with a ratio per token (A-LoL seq.) it is `CISPO`, without one (A-LoL ref. free)
  `PolicyGradient`
- rows whose advantage is positive: `KeepPositive`
- the log of the start's own answers, whose mean reward estimates its value of a prompt: `rollout=logged`
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.types import Context, PolicyOutput
from mmrl.objectives.policy import PolicyGradientTerm
from mmrl.ops.masked import zero_outside
from mmrl.transforms.rows.base import RowTransform


@dataclass(frozen=True)
class OfflinePolicyGradient(PolicyGradientTerm):
    """A-LoL loss: -A log pi(y_t) times the clipped importance ratio of the whole answer, which has no gradient.

    loss_t = -sg(clip(pi(y) / pi_ref(y), 1 - clip, 1 + clip)) A log pi(y_t), pi_ref the policy that wrote the log. The
    loss of an answer is the sum over its tokens: use a weighting that divides by no length, such as `ConstantLength`.
    Source: A-LoL, 2023, section 3, arXiv:2305.14718.

    Args:
        clip: of the ratio, 0.9 in the released code; none for no clip.
        old: column of the log-probs of the policy that wrote the log.
    """

    clip: float | None = 0.9

    def __post_init__(self) -> None:
        if self.clip is not None and not 0 < self.clip <= 1:
            raise ValueError(f"offline_policy_gradient.clip must be in (0, 1] or null, got {self.clip}")

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        weight = self.advantages(batch) * self._clipped_ratio(out, batch)
        return -weight * zero_outside(out.logprobs, batch["action_mask"])

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """ratio: the clipped ratio of the answer to the policy that wrote it."""
        return {"ratio": self._clipped_ratio(out, batch)}

    def _clipped_ratio(self, out: PolicyOutput, batch: Batch) -> Tensor:
        ratio = self.ratio(out, batch, "joint").detach()
        return ratio if self.clip is None else ratio.clamp(1 - self.clip, 1 + self.clip)


@dataclass(frozen=True)
class KeepPositive(RowTransform):
    """Keeps the rows whose advantages sum to more than 0. Source: A-LoL, 2023, section 3.3, arXiv:2305.14718."""

    def reads(self) -> frozenset[str]:
        return frozenset({"advantages", "action_mask"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        total = torch.where(batch["action_mask"], batch["advantages"], 0).sum(1)
        return batch.select((total > 0).nonzero().flatten())
