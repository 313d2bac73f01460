"""FlatParameters: all parameters of a small policy as views of one vector, so that an optimiser steps once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class FlatParameters:
    """Parameters as views of one vector, and their gradients as views of another.

    An optimiser of the vector does what one of the parameters does if it treats every element alike and alone, as SGD
    and Adam do.

    Args:
        parameters: of one type, on the device where they stay.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]):
        self.parameters = list(parameters)
        kinds = {(p.dtype, p.device) for p in self.parameters}
        if len(kinds) != 1:
            raise ValueError(f"capture needs trained parameters of one type on one device, got {sorted(kinds)}")
        self.vector = nn.Parameter(torch.cat([p.detach().flatten() for p in self.parameters]))
        for p, values in zip(self.parameters, self._split(self.vector.detach())):
            p.data = values
        self.tie()

    def tie(self) -> None:
        """Make each parameter's gradient a view of the vector's; repeat it after gradients were set to None."""
        if self.vector.grad is None:
            self.vector.grad = torch.zeros_like(self.vector)
        for p, gradient in zip(self.parameters, self._split(self.vector.grad)):
            p.grad = gradient

    def gradient(self, loss: Tensor) -> Tensor:
        """The gradient of a loss, as one vector; nothing is accumulated."""
        gradients = torch.autograd.grad(loss, self.parameters, materialize_grads=True)
        return torch.cat([part.flatten() for part in gradients])

    def clip(self, max_norm: float) -> None:
        """Scale the gradient so that its norm is at most `max_norm`, as `torch.nn.utils.clip_grad_norm_` does."""
        gradient = self.vector.grad
        assert gradient is not None  # since `tie`
        gradient.mul_((max_norm / (gradient.norm() + 1e-6)).clamp_(max=1.0))

    def _split(self, vector: Tensor) -> list[Tensor]:
        parts = vector.split([p.numel() for p in self.parameters])
        return [part.view_as(p) for part, p in zip(parts, self.parameters)]
