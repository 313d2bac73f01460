"""Numbers about the whole distribution of a choice, made where the logits are and kept instead of them."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor


class Statistic(ABC):
    """One number per choice, with gradient. `policy.statistics` names it, and terms find it in `extra`.

    The logits [N, T, V] of a language model are the largest tensor of a training step: a statistic sees those of one
    forward pass at the places of the choices, and leaves [N, T] behind.
    """

    @abstractmethod
    def __call__(
        self,
        logits: Tensor,  # [N, T, V]
        temperature: Tensor,  # [N]
    ) -> Tensor: ...  # [N, T]
