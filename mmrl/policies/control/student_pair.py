"""Two actor-critics in one policy, for curricula that compare two students."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from mmrl.policies import policy_folder
from mmrl.policies.control.encoder import perceptron
from mmrl.policies.control.heads import CategoricalHead
from mmrl.policies.control.policy import ACTIVATIONS, ControlPolicy


class StudentPairPolicy(ControlPolicy):
    """Two `ControlPolicy` networks without common weights; the last number of the state, 0 or 1, says which one acts.

    A row gives gradients to the weights of its own student alone. Actions are numbered.

    Args:
        observation_dims: length of the state vector, the student's number included.
        actions: how many actions there are.
        kind: distribution of the action, which must be categorical.
        hidden: widths of the hidden layers, of all four networks alike.
        activation: between the layers.
        path: folder that `save_pretrained` wrote; its settings replace all others.
    """

    def __init__(
        self,
        observation_dims: int | None = None,
        actions: int | None = None,
        kind: Literal["categorical"] = "categorical",
        hidden: Sequence[int] = (64, 64),
        activation: Literal["tanh", "relu", "silu"] = "tanh",
        path: str | None = None,
    ):
        settings = policy_folder.resolve(locals(), path, sizes=("observation_dims", "actions"))
        if settings["kind"] != "categorical":
            raise ValueError(
                f"two students need numbered actions (kind=categorical), got {settings['kind']}: take a simulator with "
                "discrete actions"
            )
        super().__init__(**settings)
        widths = [self.encoder.width - 1, *settings["hidden"]]
        layer = ACTIVATIONS[settings["activation"]]
        self.actor, self.critic = StudentBranches(widths, layer), StudentBranches(widths, layer)
        self.head = CategoricalHead(self.actor.width, settings["actions"])
        self.value_net = nn.Linear(self.critic.width, 1)
        self._orthogonal()
        for last in (self.head.linear, self.value_net):
            last.bias.requires_grad_(False)  # each branch has a constant feature in its place
        policy_folder.load(path, self)


class StudentBranches(nn.Module):
    """Two perceptrons side by side, of which the last input selects one; the features of the other are zero.

    Args:
        widths: of the input without the last number, then of the hidden layers.
        activation: between the layers.
    """

    def __init__(self, widths: list[int], activation: type[nn.Module]):
        super().__init__()
        self.branches = nn.ModuleList(perceptron(widths, activation) for _ in range(2))
        self.width = 2 * (widths[-1] + 1)

    def forward(self, features: Tensor) -> Tensor:
        """Features of both students, [N, 2 (H + 1)], from states with the student's number, [N, D + 1]."""
        student = features[..., -1:]
        parts = []
        for branch, chosen in zip(self.branches, (1 - student, student)):
            parts += [branch(features[..., :-1]) * chosen, chosen]
        return torch.cat(parts, dim=-1)
