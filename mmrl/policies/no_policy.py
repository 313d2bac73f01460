"""A policy without a network, for episodes that the task writes itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mmrl.core.batch import Batch
from mmrl.core.rng import Noise
from mmrl.core.types import Observation, PolicyOutput, Sampling
from mmrl.policies.base import Action, Policy


class NoPolicy(Policy):
    """Stand in where a configuration needs a policy and the rollout asks none; acting and training are refused."""

    not_trainable = "it has no network; choose a policy that has one"

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(1))  # strategies and optimisers need one

    def encode(self, raw: Mapping[str, Any]) -> Observation:
        return {}

    def act(self, observation: Mapping[str, Any], sampling: Sampling, noise: Noise) -> Action:
        raise NotImplementedError("policy=no_policy cannot act; choose a policy, or policy=oracle with mmrl evaluate")

    def forward(self, batch: Batch) -> PolicyOutput:
        raise NotImplementedError("policy=no_policy cannot be trained; choose a policy")

    def save_pretrained(self, folder: str | Path) -> None:
        raise NotImplementedError("policy=no_policy has nothing to save")
