"""Asymmetric actor-critic: the critic reads the true state, the actor what a robot would measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.rng import Noise
from mmrl.core.types import PolicyOutput, Sampling
from mmrl.policies import policy_folder
from mmrl.policies.base import Action, require_inputs
from mmrl.policies.control.encoder import perceptron
from mmrl.policies.control.policy import ACTIVATIONS, ControlPolicy

PRIVILEGED = "privileged_state"
"""Name of the observation that the critic alone reads."""


class AsymmetricPolicy(ControlPolicy):
    """Actor-critic whose critic reads the observation "privileged_state" alone, and whose actor never does.

    A simulator knows what a robot's sensors do not; the critic is needed in training only.
    Source: Pinto et al., "Asymmetric Actor Critic for Image-Based Robot Learning", 2017, arXiv:1710.06542, section IV.

    Args:
        observation_dims: length of the actor's state vector; None without one.
        privileged_dims: length of the critic's.
        actions: as in `ControlPolicy`.
        kind: distribution of the action.
        hidden: widths of the hidden layers, of actor and critic alike.
        activation: between the layers.
        low: smallest value that the simulator is given; the stored action is not clipped. Gaussian only.
        high: largest value that the simulator is given.
        log_std: initial logarithm of the standard deviation. Gaussian only.
        state_dependent_std: whether the standard deviation is a function of the state. Gaussian only.
        image_size: of the actor's observation "image", uint8: S for [S, S, 3], or [H, W, C]; None without one.
        image_features: width of the image features.
        normalize_observations: bring the actor's state vector to mean 0 and variance 1, with running statistics.
        action_mask: the observation "action_mask" says which actions are legal; others have probability 0.
        path: folder that `save_pretrained` wrote; its settings replace all others.
    """

    def __init__(
        self,
        observation_dims: int | None = None,
        privileged_dims: int | None = None,
        actions: int | list[int] | None = None,
        kind: Literal["categorical", "multi_categorical", "gaussian"] = "categorical",
        hidden: Sequence[int] = (64, 64),
        activation: Literal["tanh", "relu", "silu"] = "tanh",
        low: float | list[float] = -1.0,
        high: float | list[float] = 1.0,
        log_std: float = 0.0,
        state_dependent_std: bool = False,
        image_size: int | list[int] | None = None,
        image_features: int = 50,
        normalize_observations: bool = False,
        action_mask: bool = False,
        path: str | None = None,
    ):
        config = policy_folder.resolve(locals(), path, sizes=("observation_dims", "actions", "privileged_dims"))
        super().__init__(**{name: value for name, value in config.items() if name != "privileged_dims"})
        self.config, self.privileged_dims = config, config["privileged_dims"]
        if not self.privileged_dims:
            raise ValueError(
                "policy.privileged_dims must be at least 1: the critic reads observation 'privileged_state'; for a "
                "simulator without one take policy=control"
            )
        self.critic = perceptron([self.privileged_dims, *config["hidden"]], ACTIVATIONS[config["activation"]])
        self._orthogonal()
        policy_folder.load(path, self)

    def check_spaces(self, observation_space: Space, action_space: Any) -> None:
        """Refuse a simulator with other observations or actions than this policy."""
        super().check_spaces(observation_space, action_space)
        entries = observation_space.spaces if isinstance(observation_space, spaces.Dict) else {}
        entry = entries.get(PRIVILEGED)
        if not isinstance(entry, spaces.Box) or entry.shape != (self.privileged_dims,):
            raise ValueError(
                f"the critic reads observation {PRIVILEGED!r} of shape ({self.privileged_dims},) "
                f"(policy.privileged_dims), but the simulator's observations are {observation_space}"
            )

    def encode_batch(self, raw: Mapping[str, Any]) -> dict[str, Tensor]:
        require_inputs(raw, [PRIVILEGED], self)
        privileged = torch.from_numpy(np.array(raw[PRIVILEGED], dtype=np.float32))
        if privileged.shape[1:] != (self.privileged_dims,):
            shape = tuple(privileged.shape[1:])
            raise ValueError(
                f"observation {PRIVILEGED!r} has shape {shape}, the critic reads ({self.privileged_dims},)"
            )
        return {**super().encode_batch(raw), PRIVILEGED: privileged}

    @torch.no_grad()
    def act(self, observation: Mapping[str, Any], sampling: Sampling, noise: Noise) -> Action:
        choices, action = self._sample(observation, self.encoder(observation), sampling, noise)
        logprobs = choices.logprobs(action.action)
        return replace(action, behavior_logprobs=logprobs, values=self._values(observation[PRIVILEGED]))

    @torch.no_grad()
    def predict_values(self, observation: Mapping[str, Any]) -> Tensor:
        return self._values(observation[PRIVILEGED])

    def forward(self, batch: Batch) -> PolicyOutput:
        observation, extra = batch.observation(), {}
        choices = self._choices(observation, self.encoder(observation), batch["temperature"])
        if "support_ids" in batch:
            extra["full_logprobs"] = choices.logprobs(batch["action"])
            choices = choices.restrict(batch["support_ids"])
        values = self._values(observation[PRIVILEGED])
        return PolicyOutput(choices.logprobs(batch["action"]), choices.entropy(), values, extra)
