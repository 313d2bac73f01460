"""Regularisers: KL to a reference, entropy, and penalties on statistics of the batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.objectives.objective import Term
from mmrl.ops.masked import zero_outside
from mmrl.ops.policy_gradient import divergence, log_ratio


@dataclass(frozen=True)
class KL(Term):
    """Estimate of KL(policy || reference) at each choice, in nats.

    With d = reference - logprobs: k1 = -d (no gradient on average), k2 = d^2 / 2 (gradient of KL(policy || reference)),
    k3 = exp(d) - 1 - d (gradient of KL(reference || policy)).

    The policy in another context can be the reference: with a negative coefficient its answers come to depend on what
    that context hides. Source: Perception-Aware Policy Optimization, 2025, section 3, arXiv:2507.06448.

    Args:
        estimator: which of them.
        reference: column of the reference's log-probs.
        context: in place of the column, this context of `data.transforms`, by a further pass with gradient.
        cap: largest estimate of a choice, in nats, beyond which it has no gradient; none leaves it open.
        old: column of the log-probs that the choices were sampled with: the estimate is multiplied by the importance
            ratio to them, which makes the gradient of k3 that of KL(policy || reference). Source: DeepSeek-V3.2, 2025,
            arXiv:2512.02556. None for no ratio.
    """

    estimator: Literal["k1", "k2", "k3"] = "k3"
    reference: str = "ref_logprobs"
    context: str | None = None
    cap: float | None = None
    old: str | None = None

    def __post_init__(self) -> None:
        if self.cap is not None and self.cap <= 0:
            raise ValueError(f"kl.cap must be > 0 or null, got {self.cap}")

    def reads(self) -> frozenset[str]:
        columns = {"action_mask"} if self.context is not None else {"action_mask", self.reference}
        return frozenset(columns if self.old is None else {*columns, self.old})

    def others(self) -> frozenset[str]:
        return frozenset() if self.context is None else frozenset({self.context})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        mask = batch["action_mask"]
        reference = batch[self.reference] if self.context is None else out.other(self.context, "kl").logprobs
        apart = divergence(zero_outside(out.logprobs, mask), zero_outside(reference, mask), self.estimator)
        apart = apart if self.cap is None else apart.clamp(max=self.cap)
        return apart if self.old is None else apart * log_ratio(out.logprobs, batch[self.old], mask).exp()

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """mean: the estimate itself, nats per choice, whatever the weights of the loss sum to."""
        return {"mean": self(out, batch)}

    def loss_and_metrics(self, out: PolicyOutput, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        value = self(out, batch)
        return value, {"mean": value.detach()}


@dataclass(frozen=True)
class Entropy(Term):
    """Entropy bonus: minus the entropy of each choice, in nats."""

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return -zero_outside(out.entropy, batch["action_mask"])

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """mean: the entropy itself, nats per choice, whatever the weights of the loss sum to."""
        return {"mean": zero_outside(out.entropy, batch["action_mask"])}
