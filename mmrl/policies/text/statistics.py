"""Numbers about the whole distribution of a choice, made where the logits are and kept instead of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor

from mmrl.ops.nucleus import nucleus_entropy


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


@dataclass(frozen=True)
class NucleusEntropy(Statistic):
    """Entropy in nats of the most likely ids, renormalised, that hold at most `mass` of the probability together.

    Truncated sampling does not change it: it is about the distribution before anything was cut off.

    Args:
        mass: in (0, 1]; the most likely id always belongs.
    """

    mass: float = 0.8

    def __post_init__(self) -> None:
        if not 0 < self.mass <= 1:
            raise ValueError(f"nucleus_entropy.mass must be in (0, 1], got {self.mass}")

    def __call__(self, logits: Tensor, temperature: Tensor) -> Tensor:
        return nucleus_entropy(logits, self.mass, temperature)
