"""PPO over denoising chains: clipped surrogates with ratios per control step, per transition or per chain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.errors import check_at_least, check_fraction
from mmrl.core.types import PolicyOutput
from mmrl.objectives.policy import PolicyGradientTerm
from mmrl.ops.masked import masked_sum
from mmrl.ops.policy_gradient import (
    MAX_LOG_RATIO,
    block_log_ratio,
    clipped_surrogate,
    divergence,
    is_clipped,
    log_ratio,
)


@dataclass(frozen=True)
class ChainSurrogate(PolicyGradientTerm):
    """Clipped surrogate of a denoising chain (DPPO, pi_RL): max(-A ratio, -A clip(ratio)).

    The ratio is clipped to [1 - clip_low, 1 + clip_high]; the loss is at most -A clip_dual where A < 0.
    ratio = exp(D / n), D the sum of log-ratios over the joined choices: the control steps that were played of one
    transition, or of all drawn transitions. n is 1 for reduction "sum"; for "mean" it is the number of real numbers
    that were joined, so that a bound of 0.01 then means as much as n times that in D. Use weights that count each row
    the same. Source: pi_RL, 2025, section 4, arXiv:2510.25889 (sum, 0.2); DPPO, 2024, section 4.3, arXiv:2409.00588
    (mean, 0.01).

    Args:
        chunk: H, control steps of a transition.
        join: "step", every control step of a transition has a ratio; "transition", or "chain".
        reduction: "sum" or "mean" over the joined numbers.
        clip_low: the ratio is clipped at 1 - clip_low.
        clip_high: and at 1 + clip_high.
        clip_dual: upper bound of the ratio where the advantage is negative, > 1 + clip_high; none for no bound.
    """

    chunk: int
    join: Literal["step", "transition", "chain"] = "transition"
    reduction: Literal["sum", "mean"] = "sum"
    clip_low: float = 0.2
    clip_high: float = 0.2
    clip_dual: float | None = None

    def __post_init__(self) -> None:
        if self.join not in ("step", "transition", "chain") or self.reduction not in ("sum", "mean"):
            raise ValueError(f"chain_surrogate: join={self.join!r} and reduction={self.reduction!r} are not known")
        check_fraction("chain_surrogate", clip_low=self.clip_low)
        check_at_least(0, "chain_surrogate", clip_high=self.clip_high)
        if self.clip_dual is not None and self.clip_dual <= 1 + self.clip_high:
            raise ValueError(
                f"chain_surrogate.clip_dual must be > 1 + clip_high = {1 + self.clip_high}, got {self.clip_dual}"
            )

    def reads(self) -> frozenset[str]:
        return super().reads() | ({"action"} if self.reduction == "mean" else set())

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        ratio = self._reduce(self._total(out, batch), batch).exp()
        return clipped_surrogate(ratio, self.advantages(batch), *self._bounds(batch), self.clip_dual)  # type: ignore[arg-type]

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """ratio, clip_fraction: of what is clipped; total_ratio, kl (k3, nats): of the joint action, not reduced."""
        total = self._total(out, batch)
        ratio = self._reduce(total, batch).exp()
        cut = is_clipped(ratio, self.advantages(batch), *self._bounds(batch), self.clip_dual)  # type: ignore[arg-type]
        return {
            "ratio": ratio,
            "clip_fraction": cut.to(ratio.dtype),
            "total_ratio": total.exp(),
            "kl": divergence(torch.zeros_like(total), total, "k3"),
        }

    def _total(self, out: PolicyOutput, batch: Batch) -> Tensor:
        """[N, T] log-ratio of each choice's joint action, nats."""
        mask, old = batch["action_mask"], batch[self.old]
        if self.join == "chain":
            return log_ratio(out.logprobs, old, mask, "joint")
        return block_log_ratio(out.logprobs, old, mask, self.chunk if self.join == "transition" else 1).clamp(
            -MAX_LOG_RATIO, MAX_LOG_RATIO
        )

    def _reduce(self, total: Tensor, batch: Batch) -> Tensor:
        if self.reduction == "sum":
            return total
        mask, size = batch["action_mask"].to(total.dtype), batch["action"].shape[2:].numel()
        if self.join == "chain":
            count = masked_sum(mask, batch["action_mask"], dim=1)[:, None]
        else:
            block = mask.unflatten(1, (-1, self.chunk if self.join == "transition" else 1))
            count = block.sum(dim=2, keepdim=True).expand_as(block).flatten(1)
        return total / (size * count).clamp(min=1)

    def _bounds(self, batch: Batch) -> tuple[Tensor | float, Tensor | float]:
        return self.clip_low, self.clip_high
