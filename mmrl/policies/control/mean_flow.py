"""Actor that is a mean flow: one pass of an average-velocity network turns noise into an action."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from mmrl.core.rng import Noise
from mmrl.core.types import Sampling
from mmrl.policies.base import Action
from mmrl.policies.control.actor import ActionSample, ActorPolicy
from mmrl.policies.control.heads import Choices


class MeanFlowHead(nn.Module):
    """Average velocity u(x, r, t; s) of a flow between the times r <= t: a perceptron of features, x, r and t.

    Layers have sigmoid-weighted linear units, whose derivative is smooth: u is trained on its own derivative.

    Args:
        features: F, width of the state's features.
        actions: A, dimensions of the action.
        hidden: widths of the hidden layers.
    """

    def __init__(self, features: int, actions: int, hidden: Sequence[int] = (256, 256)):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise([features + actions + 2, *hidden, actions]))

    def forward(self, features: Tensor, x: Tensor, end_time: Tensor, time: Tensor) -> Tensor:
        """u [N, A] of features [N, F], x [N, A], and the times r and t, each [N, 1]."""
        *inner, last = self.layers
        rows = torch.cat([features, x, end_time, time], dim=-1)
        for layer in inner:
            rows = silu(layer(rows))
        return last(rows)

    def with_derivative(
        self, features: Tensor, x: Tensor, end_time: Tensor, time: Tensor, velocity: Tensor
    ) -> tuple[Tensor, Tensor]:
        """u and its derivative along x' = velocity, r' = 0, t' = 1, each [N, A]; the tangents go forward with u.

        The derivative of a layer's unit z sigmoid(z) is sigmoid(z) (1 + z (1 - sigmoid(z))).
        """
        *inner, last = self.layers
        rows = torch.cat([features, x, end_time, time], dim=-1)
        nothing = torch.zeros_like(time)
        tangent = torch.cat([torch.zeros_like(features), velocity, nothing, nothing + 1], dim=-1)
        for layer in inner:
            rows, tangent = layer(rows), tangent @ layer.weight.T
            gate = rows.sigmoid()
            rows, tangent = rows * gate, gate * (1 + rows * (1 - gate)) * tangent
        return last(rows), tangent @ last.weight.T


class MeanFlowPolicy(ActorPolicy):
    """Actor a = e - u(e, 0, 1; s), e ~ N(0, I): one step of a flow from noise to actions, clipped to the box.

    A distribution of several modes in one pass, without a density. `decode=argmax` and `decode=mean` take e = 0.
    Source: One-Step Flow Q-Learning, 2025, arXiv:2508.13904.

    Args:
        flow_hidden: widths of the hidden layers of u, which reads the features that the layers `hidden` compute.
    """

    def __init__(self, *args: Any, flow_hidden: Sequence[int] = (256,), **kwargs: Any):
        super().__init__(*args, flow_hidden=list(flow_hidden), **kwargs)

    def _head(self, features: int) -> MeanFlowHead:
        return MeanFlowHead(features, self.actions, self.config["flow_hidden"])

    def _choices(self, features: Tensor, temperature: Tensor) -> Choices:
        raise ValueError(
            "a mean flow has no density: no log-prob of a recorded action can be computed; take phases that need none, "
            "such as those of recipe=ofql"
        )

    def rsample(self, features: Tensor, noise: Tensor) -> ActionSample:
        time = noise.new_ones(len(noise), 1)
        action = noise - self.head(self.actor(features), noise, torch.zeros_like(time), time).float()
        return ActionSample(action.clamp(-1, 1), noise.new_zeros(len(noise), 1))

    @torch.no_grad()
    def act(self, observation: Mapping[str, Any], sampling: Sampling, noise: Noise) -> Action:
        if sampling.truncated:
            raise ValueError(
                f"a mean flow cannot drop unlikely actions (sampling.top_k={sampling.top_k}, "
                f"sampling.top_p={sampling.top_p}, sampling.min_p={sampling.min_p}); lower sampling.temperature instead"
            )
        features = self.features(observation)
        scale = sampling.temperature if sampling.decode == "sample" else 0.0
        drawn = noise.normal(self.actions).to(features.device) * scale
        sample = self.rsample(features, drawn)
        return self._build_action(sample.action[:, None], sample.logprobs)

    def to_action(self, choice: Tensor) -> Tensor:
        return choice.clamp(-1, 1)

    def from_action(self, action: Tensor) -> Tensor:
        return action
