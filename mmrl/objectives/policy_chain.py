"""Clipped surrogates over chains of continuous choices, with the joining of choices to one ratio spelt out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mmrl.batch import Batch
from mmrl.objectives.objective import Term
from mmrl.ops.divergence import divergence
from mmrl.ops.masked import masked_sum, zero_outside
from mmrl.ops.ratio import LIMIT, block_log_ratio, log_ratio
from mmrl.ops.surrogate import clipped, clipped_surrogate
from mmrl.types import PolicyOutput


@dataclass(frozen=True)
class ChainSurrogate(Term):
    """Clipped surrogate of a chain: loss = max(-A ratio, -A clip(ratio, 1 - low, 1 + high)), -A dual at most for A < 0.

    ratio = exp(D / n), D the sum of log-ratios over the joined choices: the control steps that were played of one
    transition, or of all drawn transitions. n is 1 for reduction "sum"; for "mean" it is the number of real numbers
    that were joined, so that a bound of 0.01 then means as much as n times that in D. Use weights that count each row
    the same. Source: pi_RL, 2025, section 4, arXiv:2510.25889 (sum, 0.2); DPPO, 2024, section 4.3, arXiv:2409.00588
    (mean, 0.01).

    Args:
        chunk: H, control steps of a transition.
        join: "step", every control step of a transition has a ratio; "transition", or "chain".
        reduction: "sum" or "mean" over the joined numbers.
        low: how far below 1 the ratio may be pushed.
        high: how far above 1.
        dual: bound of the ratio of choices with a negative advantage, > 1 + high; none leaves it open.
        old: column of the log-probs that the ratio is taken against.
    """

    chunk: int
    join: Literal["step", "transition", "chain"] = "transition"
    reduction: Literal["sum", "mean"] = "sum"
    low: float = 0.2
    high: float = 0.2
    dual: float | None = None
    old: str = "logprobs"

    needs = frozenset()

    def __post_init__(self) -> None:
        if self.join not in ("step", "transition", "chain") or self.reduction not in ("sum", "mean"):
            raise ValueError(f"chain_surrogate: join={self.join!r} and reduction={self.reduction!r} are not known")
        if not 0 <= self.low <= 1 or self.high < 0:
            raise ValueError(f"chain_surrogate: need 0 <= low <= 1 and high >= 0, got {self.low} and {self.high}")
        if self.dual is not None and self.dual <= 1 + self.high:
            raise ValueError(f"chain_surrogate.dual must be > 1 + high = {1 + self.high}, got {self.dual}")

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"mask", "advantages", self.old} | ({"action"} if self.reduction == "mean" else set()))

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        ratio = self._reduced(self._total(out, batch), batch).exp()
        return clipped_surrogate(ratio, self._advantages(batch), *self._bounds(batch), self.dual)  # type: ignore[arg-type]

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """ratio, clip_fraction: of what is clipped; total_ratio, kl (k3, nats): of the joint action, not reduced."""
        total = self._total(out, batch)
        ratio = self._reduced(total, batch).exp()
        cut = clipped(ratio, self._advantages(batch), *self._bounds(batch), self.dual)  # type: ignore[arg-type]
        return {
            "ratio": ratio,
            "clip_fraction": cut.to(ratio.dtype),
            "total_ratio": total.exp(),
            "kl": divergence(torch.zeros_like(total), total, "k3"),
        }

    def _total(self, out: PolicyOutput, batch: Batch) -> Tensor:
        """[N, T] log-ratio of each choice's joint action, nats."""
        mask, old = batch["mask"], batch[self.old]
        if self.join == "chain":
            return log_ratio(out.logprobs, old, mask, "row")
        return block_log_ratio(out.logprobs, old, mask, self.chunk if self.join == "transition" else 1).clamp(
            -LIMIT, LIMIT
        )

    def _reduced(self, total: Tensor, batch: Batch) -> Tensor:
        if self.reduction == "sum":
            return total
        mask, size = batch["mask"].to(total.dtype), batch["action"].shape[2:].numel()
        if self.join == "chain":
            count = masked_sum(mask, batch["mask"], dim=1)[:, None]
        else:
            block = mask.unflatten(1, (-1, self.chunk if self.join == "transition" else 1))
            count = block.sum(dim=2, keepdim=True).expand_as(block).flatten(1)
        return total / (size * count).clamp(min=1)

    def _advantages(self, batch: Batch) -> Tensor:
        return zero_outside(batch["advantages"], batch["mask"])

    def _bounds(self, batch: Batch) -> tuple[Tensor | float, Tensor | float]:
        return self.low, self.high


@dataclass(frozen=True)
class DenoisingSurrogate(ChainSurrogate):
    """The same, where transitions near the noise count less and are clipped more tightly.

    With i = 0 .. K - 1 the transition's number and s = i / (K - 1): the advantage is times discount^(K - 1 - i), both
    bounds are base + (bound - base) (e^(3 s) - 1) / (e^3 - 1).
    Source: Diffusion Policy Policy Optimization, 2024, section 4.3 and appendix C, arXiv:2409.00588.

    Args:
        steps: K. chunk, join, reduction, low, high, dual, old: as of ChainSurrogate.
        discount: gamma of denoising, 1 counts all transitions the same.
        base: bound of the first transition; none for the same bound everywhere.
    """

    steps: int = 10
    discount: float = 0.99
    base: float | None = 0.001

    def _number(self, batch: Batch) -> Tensor:
        """[T] number of the transition that each choice belongs to; block 0 is the noise."""
        choices = torch.arange(batch["mask"].shape[1], device=batch["mask"].device)
        return (choices // self.chunk - 1).clamp(min=0)

    def _advantages(self, batch: Batch) -> Tensor:
        return super()._advantages(batch) * self.discount ** (self.steps - 1 - self._number(batch))

    def _bounds(self, batch: Batch) -> tuple[Tensor | float, Tensor | float]:
        if self.base is None:
            return self.low, self.high
        share = self._number(batch) / max(self.steps - 1, 1)
        rise = ((3 * share).exp() - 1) / (math.exp(3) - 1)
        return self.base + (self.low - self.base) * rise, self.base + (self.high - self.base) * rise
