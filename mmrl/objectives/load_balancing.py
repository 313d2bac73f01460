"""Load-balancing loss of mixtures of experts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput
from mmrl.distributed import parallel
from mmrl.objectives.objective import Term


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
