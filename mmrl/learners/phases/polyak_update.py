"""Soft updates of target networks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.errors import check_interval
from mmrl.learners.phases.base import Phase, UpdateContext, part


@torch.no_grad()
def polyak_update(
    targets: Sequence[Tensor],
    sources: Sequence[Tensor],
    tau: float,  # in (0, 1]; 1 copies
) -> None:
    """Polyak averaging of parameters in place: target += tau * (source - target)."""
    torch._foreach_lerp_(list(targets), list(sources), tau)


class PolyakUpdate(Phase):
    """PolyakUpdate: soft update of target networks, target += tau * (network - target).

    Args:
        targets: for each target network, by name, the network that it follows.
        tau: in (0, 1]; 1 copies.
        every: update in every `every`-th update (policy delay in TD3).
    """

    def __init__(self, targets: dict[str, str], tau: float = 0.005, every: int = 1):
        self.targets, self.tau, self.every = targets, tau, every

    def models(self) -> frozenset[str]:
        return frozenset(name.partition(".")[0] for name in (*self.targets, *self.targets.values()))

    def check(self) -> None:
        super().check()
        check_interval("PolyakUpdate", "(0, 1]", tau=self.tau)

    def __call__(self, batch: Batch, ctx: UpdateContext) -> Batch:
        for target, source in self.targets.items():
            target_network, network = part(ctx.models, target), part(ctx.models, source)
            polyak_update(list(target_network.parameters()), list(network.parameters()), self.tau)
        return batch
