"""Uniform random actions, taken before learning starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.rng import Noise
from mmrl.core.types import Observation, PolicyOutput, Sampling
from mmrl.policies.base import Action, Policy
from mmrl.policies.control.actor import ActorPolicy


class UniformPolicy(Policy):
    """Sample uniform actions in the box of another policy, before learning starts.

    Args:
        actor: the policy whose observations and actions it shares.
    """

    def __init__(self, actor: ActorPolicy):
        super().__init__()
        self.actor = actor

    @property
    def device(self) -> torch.device:
        return self.actor.device

    def check_spaces(self, observation_space: Any, action_space: Any) -> None:
        """Check the spaces as the other policy does."""
        self.actor.check_spaces(observation_space, action_space)

    def encode(self, raw: Mapping[str, Any]) -> Observation:
        return self.actor.encode(raw)

    def encode_batch(self, raw: Mapping[str, Any]) -> dict[str, Tensor] | None:
        return self.actor.encode_batch(raw)

    def collate(self, observations: Sequence[Observation]) -> dict[str, Tensor]:
        return self.actor.collate(observations)

    def act(self, observation: Mapping[str, Any], sampling: Sampling, noise: Noise) -> Action:
        return self.actor.act_uniformly(observation, noise)

    def forward(self, batch: Batch) -> PolicyOutput:
        raise NotImplementedError("a uniform policy cannot be trained")

    def save_pretrained(self, folder: str | Path) -> None:
        raise NotImplementedError("a uniform policy has nothing to save; save the actor")
