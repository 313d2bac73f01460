"""Actor-critic networks for simulators that return a state vector."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from mmrl.batch import Batch
from mmrl.policies import policy_folder
from mmrl.policies.base import Action, Policy, require_inputs
from mmrl.policies.control.encoder import encode_single, perceptron
from mmrl.policies.control.heads import CategoricalHead, Choices, GaussianHead
from mmrl.rng import Noise
from mmrl.types import Observation, PolicyOutput, Sampling

ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU, "silu": nn.SiLU}


class ControlPolicy(Policy):
    """Actor-critic for state vectors: one multilayer perceptron for the policy, another for the value function.

    Weights start orthogonal: gain sqrt(2) in hidden layers, 0.01 for the action, 1 for the value.
    Source: Andrychowicz et al., "What matters in on-policy reinforcement learning?", 2021, section 3.2.

    Args:
        observation_dims: length of the state vector.
        actions: how many actions there are (categorical), or how many dimensions the action has (gaussian).
        kind: distribution of the action.
        hidden: widths of the hidden layers, of actor and critic alike.
        activation: between the layers.
        low: smallest value that the simulator is given; the stored action is not clipped. Gaussian only.
        high: largest value that the simulator is given.
        log_std: initial logarithm of the standard deviation. Gaussian only.
        state_dependent_std: whether the standard deviation is a function of the state. Gaussian only.
        path: folder that `save_pretrained` wrote; its settings replace all others.
    """

    head: CategoricalHead | GaussianHead
    low: Tensor
    high: Tensor

    def __init__(
        self,
        observation_dims: int | None = None,
        actions: int | None = None,
        kind: Literal["categorical", "gaussian"] = "categorical",
        hidden: Sequence[int] = (64, 64),
        activation: Literal["tanh", "relu", "silu"] = "tanh",
        low: float | list[float] = -1.0,
        high: float | list[float] = 1.0,
        log_std: float = 0.0,
        state_dependent_std: bool = False,
        path: str | None = None,
    ):
        super().__init__()
        self.config = policy_folder.resolve(locals(), path, sizes=("observation_dims", "actions"))
        own = SimpleNamespace(**self.config)
        if not own.observation_dims or not own.actions:
            raise ValueError(
                "policy.observation_dims and policy.actions must be at least 1 (or give policy.path), "
                f"got {own.observation_dims} and {own.actions}"
            )
        if own.kind not in ("categorical", "gaussian"):
            raise ValueError(f"policy.kind must be categorical or gaussian, got {own.kind!r}")
        if own.activation not in ACTIVATIONS:
            raise ValueError(f"policy.activation must be one of {sorted(ACTIVATIONS)}, got {own.activation!r}")
        self.observation_dims, self.actions, self.discrete = (
            own.observation_dims,
            own.actions,
            own.kind == "categorical",
        )
        widths = [own.observation_dims, *own.hidden]
        self.actor = perceptron(widths, ACTIVATIONS[own.activation])
        self.critic = perceptron(widths, ACTIVATIONS[own.activation])
        self.value = nn.Linear(widths[-1], 1)
        if self.discrete:
            self.head = CategoricalHead(widths[-1], own.actions)
        else:
            self.head = GaussianHead(widths[-1], own.actions, own.log_std, own.state_dependent_std)
        for name, bound in (("low", own.low), ("high", own.high)):
            self.register_buffer(name, torch.as_tensor(bound).float().expand(own.actions).clone(), persistent=False)
        self._orthogonal()
        policy_folder.load(path, self)

    def _orthogonal(self) -> None:
        gains = {layer: 0.01 for layer in self.head.modules()} | {self.value: 1.0}
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.orthogonal_(layer.weight, gains.get(layer, math.sqrt(2)))
                nn.init.zeros_(layer.bias)

    @classmethod
    def predicts(cls, init_args: Mapping[str, Any]) -> frozenset[str]:
        return frozenset({"values"})

    @classmethod
    def provides(cls, init_args: Mapping[str, Any]) -> frozenset[str]:
        return frozenset({"values"})

    def check_spaces(self, observation_space: Space, action_space: Any) -> None:
        """Refuse a simulator with other state or action spaces than this policy."""
        state = observation_space["state"] if isinstance(observation_space, spaces.Dict) else observation_space
        if not isinstance(state, spaces.Box) or state.shape != (self.observation_dims,):
            raise ValueError(
                f"policy.observation_dims={self.observation_dims}, but the simulator's observations are {state}"
            )
        if self.discrete:
            fits = isinstance(action_space, spaces.Discrete) and action_space.n == self.actions
            fits = fits and action_space.start == 0
            own = f"{self.actions} numbered actions (kind=categorical)"
        else:
            fits = isinstance(action_space, spaces.Box) and action_space.shape == (self.actions,)
            fits = fits and bool((self.low.cpu().numpy() == action_space.low).all())
            fits = fits and bool((self.high.cpu().numpy() == action_space.high).all())
            own = f"{self.actions} reals in [{self.low.tolist()}, {self.high.tolist()}] (kind=gaussian)"
        if not fits:
            raise ValueError(
                f"the policy gives {own}, but the simulator takes {action_space}; "
                "set policy.kind, policy.actions, policy.low and policy.high to fit"
            )

    def encode(self, raw: Mapping[str, Any]) -> Observation:
        return encode_single(raw, self)

    def encode_batch(self, raw: Mapping[str, Any]) -> dict[str, Tensor]:
        require_inputs(raw, ["state"], self)
        state = torch.from_numpy(np.array(raw["state"], dtype=np.float32))  # a copy: the simulator may reuse its buffer
        if state.shape[1:] != (self.observation_dims,):
            raise ValueError(
                f"policy.observation_dims={self.observation_dims}, but the simulator gives states of shape "
                f"{tuple(state.shape[1:])}"
            )
        return {"state": state}

    def _choices(self, state: Tensor, temperature: Tensor) -> Any:
        return self.head(self.actor(state), temperature)

    def _values(self, state: Tensor) -> Tensor:
        return self.value(self.critic(state)).float()[:, 0]

    @torch.no_grad()
    def act(self, observation: Mapping[str, Any], sampling: Sampling, noise: Noise) -> Action:
        choices, action = self._sample(observation["state"], sampling, noise)
        return replace(
            action, behavior_logprobs=choices.logprobs(action.action), values=self._values(observation["state"])
        )

    @torch.no_grad()
    def act_batch(self, observation: Mapping[str, Any], sampling: Sampling, noise: Noise) -> Action:
        return self._sample(observation["state"], sampling, noise)[1]

    @torch.no_grad()
    def score_batch(self, columns: Mapping[str, Tensor]) -> dict[str, Tensor]:
        scored = self(Batch(columns))
        return {"behavior_logprobs": scored.logprobs, "values": scored.values}

    @torch.no_grad()
    def predict_values(self, observation: Mapping[str, Any]) -> Tensor:
        return self._values(observation["state"])

    def _sample(self, state: Tensor, sampling: Sampling, noise: Noise) -> tuple[Choices, Action]:
        """Sample: return the distribution and the chosen actions, without log-probs and values."""
        choices = self._choices(state, state.new_full((len(state),), sampling.temperature))
        extra = {}
        if sampling.truncated:
            choices = choices.truncate(sampling)
            extra["support_ids"] = choices.support_ids
        action = choices.draw(sampling, noise)
        mask = torch.ones(len(action), 1, dtype=torch.bool, device=action.device)
        return choices, Action(action, None, mask, self._output(action), extra=extra)

    def _output(self, action: Tensor) -> list[Any]:
        """Convert choices to the simulator's actions: a number, or a vector clipped to the bounds."""
        if self.discrete:
            return action[:, 0].tolist()
        return list(action[:, 0].clamp(self.low, self.high).cpu().numpy())

    def forward(self, batch: Batch) -> PolicyOutput:
        state = batch["obs.state"]
        choices, extra = self._choices(state, batch["temperature"]), {}
        if "support_ids" in batch:
            extra["full_logprobs"] = choices.logprobs(batch["action"])
            choices = choices.restrict(batch["support_ids"])
        return PolicyOutput(choices.logprobs(batch["action"]), choices.entropy(), self._values(state), extra)

    def save_pretrained(self, folder: str | Path) -> None:
        policy_folder.save(folder, self.config, self)
