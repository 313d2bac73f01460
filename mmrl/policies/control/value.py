"""State-value functions of off-policy methods."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from mmrl.policies.control.encoder import perceptron


class ValueNetwork(nn.Module):
    """State-value function V(features): a multilayer perceptron.

    Args:
        features: F, width of the actor's features, or of their parts side by side; a part that is None has none.
        hidden: widths of the hidden layers, with rectified linear units.
    """

    def __init__(self, features: int | list[int | None], hidden: Sequence[int] = (256, 256)):
        super().__init__()
        width = features if isinstance(features, int) else sum(part or 0 for part in features)
        widths = [width, *hidden]
        self.body, self.head = perceptron(widths, nn.ReLU), nn.Linear(widths[-1], 1)

    def forward(self, features: Tensor) -> Tensor:
        """V(s) [N, 1]."""
        return self.head(self.body(features)).float()
