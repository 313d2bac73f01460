"""Hilbert representations: an embedding whose distances are temporal distances, and an actor that moves in it.

Foundation Policies with Hilbert Representations, 2024, arXiv:2402.15567: Hilbert representations (the value of a goal
is a negative distance), and zero-shot prompting (what a direction is at test time).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from mmrl.core.errors import check_at_least
from mmrl.policies.control.goal import GoalPolicy
from mmrl.policies.control.tanh_mean import TanhMeanHead

_SMALLEST = 1e-6  # of a squared distance, whose root has no derivative at 0


def hilbert_distance(
    one: Tensor,  # [..., D]
    other: Tensor,  # [..., D]
) -> Tensor:  # [...]
    """||one - other||, at least 1e-3, where the gradient is 0."""
    return (one - other).square().sum(-1).clamp(min=_SMALLEST).sqrt()


def unit_vectors(
    vectors: Tensor,  # [..., D]
) -> Tensor:  # [..., D]
    """Vectors of length 1 in the same directions; a zero vector stays zero."""
    return normalize(vectors, dim=-1, eps=1e-12)


def choose_midpoints(
    here: Tensor,  # [N, D]
    aim: Tensor,  # [N, D]
    landmarks: Tensor,  # [M, D]
) -> Tensor:  # [N, D]
    """The landmark w with the least max(||here - w||, ||w - aim||), or the aim where that is not below ||here - aim||.

    Without the exception a state next to an aim that lies apart from all landmarks would never move on to it.
    Source: "Test-time planning".
    """
    farther = torch.maximum(torch.cdist(here, landmarks), torch.cdist(aim, landmarks))
    distance, nearest = farther.min(dim=1)
    between = distance < (here - aim).norm(dim=-1)
    return torch.where(between[:, None], landmarks[nearest], aim)


def fit_skill(
    change: Tensor,  # [N, D] phi(s') - phi(s)
    reward: Tensor,  # [N]
) -> Tensor:  # [D]
    """Unit vector z of the least squares of rewards on <phi(s') - phi(s), z>; zero where all rewards are 0.

    Source: "Zero-shot RL", the section on prompting.
    """
    return unit_vectors(torch.linalg.lstsq(change.double(), reward.double()[:, None], driver="gelsd").solution[:, 0])


class HilbertRepresentation(nn.Module):
    """K independent embeddings phi_k(s), perceptrons with layer normalisation.

    Args:
        features: F, width of the state's features.
        dims: D, of an embedding.
        hidden: widths of the hidden layers.
        count: K; the smaller of two values reduces overestimation.
    """

    def __init__(self, features: int, dims: int, hidden: Sequence[int] = (256, 256), count: int = 2):
        super().__init__()
        check_at_least(1, "policy.representation", features=features, dims=dims, count=count)
        self.networks = nn.ModuleList(_network([features, *hidden], dims) for _ in range(count))

    def forward(self, features: Tensor) -> Tensor:
        """Embeddings [N, K, D]."""
        return torch.stack([network(features) for network in self.networks], dim=1)


def _network(widths: Sequence[int], dims: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.LayerNorm(after), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], dims))


class HilbertPolicy(GoalPolicy):
    """HILP's actor N(tanh(f(s, z)), std): z is a direction in the space of its representation phi.

    While it is trained, z is the column "skill" of the batch. In a simulator that observes a goal, z points from phi(s)
    to phi(g), or to a midpoint between them, and is computed anew in every decision. Without a goal z is `skill`, the
    direction in which the recorded rewards increase.

    Args:
        skill_dims: D, length of z.
        representation_hidden: widths of the hidden layers of phi.
        midpoints: how often the goal is replaced by a midpoint between the state and it; 0 aims at the goal itself.
        landmarks: recorded states among which midpoints are looked for.
    """

    needs_goal = False
    skill: Tensor
    landmarks: Tensor

    def __init__(
        self,
        *args: Any,
        skill_dims: int = 32,
        representation_hidden: Sequence[int] = (256, 256),
        midpoints: int = 0,
        landmarks: int = 1000,
        **kwargs: Any,
    ):
        check_at_least(1, "policy", skill_dims=skill_dims, landmarks=landmarks)
        check_at_least(0, "policy", midpoints=midpoints)
        super().__init__(
            *args,
            skill_dims=skill_dims,
            representation_hidden=list(representation_hidden),
            midpoints=midpoints,
            landmarks=landmarks,
            **kwargs,
        )

    def _head(self, features: int) -> TanhMeanHead:
        head, dims, goal_dims = super()._head(features), self.encoder.observation_dims, self.goal_dims
        if goal_dims != dims or self.encoder.width != dims:
            raise ValueError(
                f"policy.goal_dims={goal_dims}, policy.observation_dims={dims}, policy.image_size="
                f"{self.config['image_size']}: HILP embeds states and goals alike, so a goal is a whole state vector, "
                "and there are no images"
            )
        self.midpoints = self.config["midpoints"]
        self.representation = HilbertRepresentation(
            dims, self.config["skill_dims"], self.config["representation_hidden"]
        )
        self.register_buffer("skill", torch.zeros(self.config["skill_dims"]))
        self.register_buffer("landmarks", torch.zeros(self.config["landmarks"], dims))
        return head

    @property
    def context_dims(self) -> int:
        return self.config["skill_dims"]

    def features(self, observation: Mapping[str, Tensor]) -> Tensor:
        """State features and direction z [N, F + D]; `observation` has "skill" or "goal", or neither."""
        states = self.encoder(observation)
        if "skill" in observation:
            skill = observation["skill"]
        elif "goal" in observation:
            skill = self.find_direction(states, self.scale_goal(observation["goal"]))
        else:
            skill = self.skill.expand(len(states), -1)
        return torch.cat((states, skill), dim=-1)

    def embed(self, states: Tensor) -> Tensor:
        """phi(s) [N, D] of scaled states [N, F], the first of its networks."""
        return self.representation.networks[0](states)

    @torch.no_grad()
    def find_direction(self, states: Tensor, goals: Tensor) -> Tensor:
        """z = (phi(g) - phi(s)) / ||phi(g) - phi(s)|| [N, D], of scaled states and goals [N, F]; 0 at the goal.

        Source: "Zero-shot goal-conditioned RL" and "Test-time planning".
        """
        here, aim = self.embed(states), self.embed(goals)
        if self.midpoints:
            landmarks = self.embed(self.scale_goal(self.landmarks))
            for _ in range(self.midpoints):
                aim = choose_midpoints(here, aim, landmarks)
        return unit_vectors(aim - here)
