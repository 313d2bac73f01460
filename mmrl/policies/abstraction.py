"""A map of states, learnt beside a policy."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from mmrl.policies.control import perceptron


class Abstraction(nn.Module):
    """A multilayer perceptron from a state vector, whose last entries are the life's skill, to a place on a map.

    Args:
        features: length of the state vector, skill included.
        dims: K, length of the skill and dimensions of the map; the map does not see the skill.
        hidden: widths of the hidden layers, with rectified linear units.
    """

    def __init__(self, features: int, dims: int, hidden: Sequence[int] = (128, 128)):
        super().__init__()
        if not 0 < dims < features:
            raise ValueError(
                f"a map of {dims} dimensions needs a state of more than {features} numbers, skill included"
            )
        self.dims = dims
        widths = [features - dims, *hidden]
        self.body, self.place = perceptron(widths, nn.ReLU), nn.Linear(widths[-1], dims)

    def forward(self, features: Tensor) -> Tensor:
        """[N, K]"""
        return self.place(self.body(features[:, : -self.dims]))

    def skill(self, features: Tensor) -> Tensor:
        """[N, K], the skill in a state vector."""
        return features[:, -self.dims :]
