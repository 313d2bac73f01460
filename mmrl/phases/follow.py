"""Slow copies that follow what learns."""

from __future__ import annotations

from mmrl.batch import Batch
from mmrl.ops.polyak import polyak
from mmrl.phases.base import Phase, Turn, part


class Follow(Phase):
    """Moves slow copies towards their originals: slow += rate * (fast - slow).

    Args:
        pairs: for each slow copy, by name, what it follows.
        rate: in (0, 1]; 1 copies.
        every: k, in every k-th update.
    """

    def __init__(self, pairs: dict[str, str], rate: float = 0.005, every: int = 1):
        self.pairs, self.rate, self.every = pairs, rate, every

    @property
    def models(self) -> frozenset[str]:
        return frozenset(name.partition(".")[0] for name in (*self.pairs, *self.pairs.values()))

    def check(self) -> None:
        super().check()
        if not 0 < self.rate <= 1:
            raise ValueError(f"Follow.rate must be in (0, 1], got {self.rate}")

    def __call__(self, batch: Batch, turn: Turn) -> Batch:
        for slow, fast in self.pairs.items():
            copies, originals = part(turn.models, slow), part(turn.models, fast)
            polyak(list(copies.parameters()), list(originals.parameters()), self.rate)
        return batch
