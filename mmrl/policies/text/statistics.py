"""Statistics of a choice's distribution, computed from the logits and stored in their place."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor


class Statistic(ABC):
    """One number per choice, with gradient; terms read it from `extra` under its name in `policy.statistics`.

    The logits [N, T, V] are the largest tensor of a training step. A statistic reduces those of one forward pass to [N,
    T], so that they need not be kept.
    """

    @abstractmethod
    def __call__(
        self,
        logits: Tensor,  # [N, T, V]
        temperature: Tensor,  # [N]
    ) -> Tensor: ...  # [N, T]
