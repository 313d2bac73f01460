"""METRA's representation function."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from mmrl.policies.control.policy import perceptron


class Representation(nn.Module):
    """METRA's representation function phi(s): a multilayer perceptron from a state vector to K dimensions.

    The last entries of the state vector are the episode's skill, which phi does not read.

    Args:
        features: length of the state vector, skill included.
        dims: K, length of the skill and of the representation.
        hidden: widths of the hidden layers, with rectified linear units.
    """

    def __init__(self, features: int, dims: int, hidden: Sequence[int] = (128, 128)):
        super().__init__()
        if not 0 < dims < features:
            raise ValueError(
                f"dims={dims} must be at least 1 and less than features={features}, the state's length with the skill"
            )
        self.dims = dims
        widths = [features - dims, *hidden]
        self.body, self.head = perceptron(widths, nn.ReLU), nn.Linear(widths[-1], dims)

    def forward(self, features: Tensor) -> Tensor:
        """phi(s) [N, K]."""
        return self.head(self.body(features[:, : -self.dims]))

    def skill(self, features: Tensor) -> Tensor:
        """The skill [N, K] in a state vector."""
        return features[:, -self.dims :]
