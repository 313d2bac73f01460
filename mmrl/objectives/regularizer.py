"""Regularisers: KL to a reference, entropy, loads of experts, and penalties on statistics of the batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.distributed import parallel
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


@dataclass(frozen=True)
class LoadBalancing(Term):
    """Load-balancing loss of Switch Transformer: E sum_e f_e P_e over E experts, of rows with a loss weight.

    f_e is the mean number of times that a token has expert e among its `top_k` most probable ones, without gradient,
    P_e the mean probability of the expert, both over the tokens of the micro-batches of all processes and over the
    layers: `load_balancing_loss_func` of transformers on these rows. It is `top_k` where the loads are equal. The term
    of a row is its tokens' share, divided by the row's share of the loss weights, so that the loss is that of the
    tokens whatever the weighting is, times the sum of the weights. Source: Switch Transformers, 2021, equations 4 to 6,
    arXiv:2101.03961.
    """

    whole_micro_batches = True

    def reads(self) -> frozenset[str]:
        return frozenset({"loss_weights"})

    def needs(self) -> frozenset[str]:
        return frozenset({"router_probs", "expert_counts", "routed_lengths"})  # [N, E], [N, E], [N]

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return self.loss_and_metrics(out, batch)[0]

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """loss: the loss itself; largest: the largest load of an expert, 1 where all are equal."""
        with torch.no_grad():
            return self.loss_and_metrics(out, batch)[1]

    def loss_and_metrics(self, out: PolicyOutput, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        weights = batch["loss_weights"].sum(1)
        rows = weights != 0
        # over all processes: assignments [E] of each expert, number of tokens, and sum of the weights
        counts = (out.extra["expert_counts"] * rows[:, None]).sum(0)
        lengths = (out.extra["routed_lengths"] * rows).sum()
        *assignments, tokens, weight = parallel.total(torch.cat([counts, torch.stack([lengths, weights.sum()])]))
        fractions = torch.stack(assignments) / tokens.clamp(min=1)  # f_e [E]
        loads = len(fractions) * (out.extra["router_probs"] * fractions).sum(1) / tokens.clamp(min=1)  # [N]
        term = torch.where(rows, loads * weight / torch.where(rows, weights, 1), 0)
        largest = len(fractions) * fractions.max() / fractions.sum().clamp(min=torch.finfo(fractions.dtype).tiny)
        return term, {"loss": term.detach(), "largest": largest.expand(len(rows))}
