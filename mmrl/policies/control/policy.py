"""Actor-critic networks for simulators that return a state vector or an image."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from mmrl.core.batch import Batch
from mmrl.core.rng import Noise
from mmrl.core.types import Observation, PolicyOutput, Sampling
from mmrl.policies import policy_folder
from mmrl.policies.base import Action, Policy, require_inputs
from mmrl.policies.control.encoder import ObservationEncoder, encode_single, perceptron
from mmrl.policies.control.heads import CategoricalHead, Choices, GaussianHead, MultiCategoricalHead

ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU, "silu": nn.SiLU}

MASK = "action_mask"
"""Name of the observation that says which actions are legal."""
_LATER_OPTIONS = {"image_size": None, "image_features": 50, "normalize_observations": False, "action_mask": False}
"""Values of options that folders of older versions do not have."""


class ControlPolicy(Policy):
    """Actor-critic: one multilayer perceptron for the policy, another for the value function.

    Both read the state vector, and the features of the image that one convolutional network computes for both.
    Weights start orthogonal: gain sqrt(2) in hidden layers, 0.01 for the action, 1 for the value.
    Source: Andrychowicz et al., "What matters in on-policy reinforcement learning?", 2021, section 3.2.

    Args:
        observation_dims: length of the state vector; None without one.
        actions: how many actions there are (categorical), how many actions each number has (multi_categorical), or how
            many dimensions the action has (gaussian).
        kind: distribution of the action.
        hidden: widths of the hidden layers, of actor and critic alike.
        activation: between the layers.
        low: smallest value that the simulator is given; the stored action is not clipped. Gaussian only.
        high: largest value that the simulator is given.
        log_std: initial logarithm of the standard deviation. Gaussian only.
        state_dependent_std: whether the standard deviation is a function of the state. Gaussian only.
        image_size: of the observation "image", uint8: S for [S, S, 3], or [H, W, C]; None without one.
        image_features: width of the image features.
        normalize_observations: bring the state vector to mean 0 and variance 1, with running statistics that are saved
            with the policy (`RunningStatistics`).
        action_mask: the observation "action_mask" says which actions are legal; others have probability 0.
        path: folder that `save_pretrained` wrote; its settings replace all others.
    """

    renamed_weights: ClassVar[Mapping[str, str]] = {"value": "value_net"}
    head: CategoricalHead | MultiCategoricalHead | GaussianHead
    encoder: ObservationEncoder
    low: Tensor
    high: Tensor

    def __init__(
        self,
        observation_dims: int | None = None,
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
        super().__init__()
        self.config = policy_folder.resolve(locals(), path, sizes=("observation_dims", "actions"))
        options = SimpleNamespace(**{**_LATER_OPTIONS, **self.config})
        if not (options.observation_dims or options.image_size) or not options.actions:
            raise ValueError(
                "policy.observation_dims and policy.actions must be at least 1 (or give policy.path), "
                f"got {options.observation_dims} and {options.actions}"
            )
        _check_options(options)
        self.observation_dims, self.actions = options.observation_dims, options.actions
        self.kind, self.reads_mask = options.kind, options.action_mask
        # actor and critic share the encoder, and have layers of their own
        dims = len(options.actions) if isinstance(options.actions, list) else options.actions
        self.encoder = ObservationEncoder(
            options.observation_dims,
            "state",
            options.image_size,
            options.image_features,
            options.normalize_observations,
        )
        widths = [self.encoder.width, *options.hidden]
        self.actor = perceptron(widths, ACTIVATIONS[options.activation])
        self.critic = perceptron(widths, ACTIVATIONS[options.activation])
        self.value_net = nn.Linear(widths[-1], 1)
        if self.kind == "categorical":
            self.head = CategoricalHead(widths[-1], options.actions)
        elif self.kind == "multi_categorical":
            self.head = MultiCategoricalHead(widths[-1], options.actions)
        else:
            self.head = GaussianHead(widths[-1], options.actions, options.log_std, options.state_dependent_std)
        for name, bound in (("low", options.low), ("high", options.high)):
            self.register_buffer(name, torch.as_tensor(bound).float().expand(dims).clone(), persistent=False)
        self._orthogonal()
        policy_folder.load(path, self)

    def _orthogonal(self) -> None:
        gains = {layer: 0.01 for layer in self.head.modules()} | {self.value_net: 1.0}
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
        """Refuse a simulator with other observations or actions than this policy."""
        self.encoder.check_space(observation_space)
        has_mask = isinstance(observation_space, spaces.Dict) and MASK in observation_space.spaces
        if self.reads_mask and not has_mask:
            raise ValueError(f"policy.action_mask=true, but the simulator's observations {observation_space} have none")
        if self.kind == "categorical":
            fits = isinstance(action_space, spaces.Discrete) and action_space.n == self.actions
            fits = fits and action_space.start == 0
            description = f"{self.actions} numbered actions (kind=categorical)"
        elif self.kind == "multi_categorical":
            fits = isinstance(action_space, spaces.MultiDiscrete) and action_space.nvec.tolist() == self.actions
            description = f"numbers of {self.actions} actions (kind=multi_categorical)"
        else:
            fits = isinstance(action_space, spaces.Box) and action_space.shape == (self.actions,)
            fits = fits and bool((self.low.cpu().numpy() == action_space.low).all())
            fits = fits and bool((self.high.cpu().numpy() == action_space.high).all())
            description = f"{self.actions} reals in [{self.low.tolist()}, {self.high.tolist()}] (kind=gaussian)"
        if not fits:
            raise ValueError(
                f"the policy gives {description}, but the simulator takes {action_space}; "
                "set policy.kind, policy.actions, policy.low and policy.high to fit"
            )

    def encode(self, raw: Mapping[str, Any]) -> Observation:
        return encode_single(raw, self)

    def encode_batch(self, raw: Mapping[str, Any]) -> dict[str, Tensor]:
        encoded = self.encoder.encode_batch(raw, self)
        if self.reads_mask:
            require_inputs(raw, [MASK], self)
            mask = torch.from_numpy(np.array(raw[MASK], dtype=np.int8))
            size = self.head.linear.out_features
            if mask.shape[1:] != (size,):
                raise ValueError(f"observation {MASK!r} has shape {tuple(mask.shape[1:])}, the policy reads ({size},)")
            encoded[MASK] = mask
        return encoded

    def _choices(self, observation: Mapping[str, Tensor], features: Tensor, temperature: Tensor) -> Any:
        return self.head(self.actor(features), temperature, observation[MASK] if self.reads_mask else None)

    def _values(self, features: Tensor) -> Tensor:
        return self.value_net(self.critic(features)).float()[:, 0]

    @torch.no_grad()
    def act(self, observation: Mapping[str, Any], sampling: Sampling, noise: Noise) -> Action:
        features = self.encoder(observation)
        choices, action = self._sample(observation, features, sampling, noise)
        return replace(action, behavior_logprobs=choices.logprobs(action.action), values=self._values(features))

    @torch.no_grad()
    def act_batch(self, observation: Mapping[str, Any], sampling: Sampling, noise: Noise) -> Action:
        return self._sample(observation, self.encoder(observation), sampling, noise)[1]

    @torch.no_grad()
    def score_batch(self, columns: Mapping[str, Tensor]) -> dict[str, Tensor]:
        scored = self(Batch(columns))
        return {"behavior_logprobs": scored.logprobs, "values": scored.values}

    @torch.no_grad()
    def predict_values(self, observation: Mapping[str, Any]) -> Tensor:
        return self._values(self.encoder(observation))

    def count_rows(self, batch: Batch, total: Callable[[Tensor], Tensor]) -> None:
        self.encoder.count_rows(batch, total)

    def include_rows(self) -> None:
        self.encoder.include_rows()

    def _sample(
        self, observation: Mapping[str, Any], features: Tensor, sampling: Sampling, noise: Noise
    ) -> tuple[Choices, Action]:
        """Sample: return the distribution and the chosen actions, without log-probs and values."""
        choices = self._choices(observation, features, features.new_full((len(features),), sampling.temperature))
        extra = {}
        if sampling.truncated:
            choices = choices.truncate(sampling)
            extra["support_ids"] = choices.support_ids
        action = choices.draw(sampling, noise)
        mask = torch.ones(len(action), 1, dtype=torch.bool, device=action.device)
        return choices, Action(action, None, mask, self._output(action), extra=extra)

    def _output(self, action: Tensor) -> list[Any]:
        """Convert choices to the simulator's actions: a number, several, or a vector clipped to the bounds."""
        if self.kind == "categorical":
            return action[:, 0].tolist()
        if self.kind == "multi_categorical":
            return list(action[:, 0].cpu().numpy())
        return list(action[:, 0].clamp(self.low, self.high).cpu().numpy())

    def forward(self, batch: Batch) -> PolicyOutput:
        observation = batch.observation()
        features = self.encoder(observation)
        choices, extra = self._choices(observation, features, batch["temperature"]), {}
        if "support_ids" in batch:
            extra["full_logprobs"] = choices.logprobs(batch["action"])
            choices = choices.restrict(batch["support_ids"])
        return PolicyOutput(choices.logprobs(batch["action"]), choices.entropy(), self._values(features), extra)

    def save_pretrained(self, folder: str | Path) -> None:
        policy_folder.save(folder, self.config, self)


def _check_options(options: SimpleNamespace) -> None:
    """Refuse options that do not fit each other."""
    if options.kind not in ("categorical", "multi_categorical", "gaussian"):
        raise ValueError(f"policy.kind must be categorical, multi_categorical or gaussian, got {options.kind!r}")
    several = options.kind == "multi_categorical"
    if isinstance(options.actions, list) != several or (several and min(options.actions) < 1):
        form = "a list of numbers of actions" if several else "a whole number"
        raise ValueError(f"policy.actions must be {form} where policy.kind={options.kind}, got {options.actions}")
    if options.activation not in ACTIVATIONS:
        raise ValueError(f"policy.activation must be one of {sorted(ACTIVATIONS)}, got {options.activation!r}")
    if options.action_mask and options.kind == "gaussian":
        raise ValueError(
            "policy.action_mask=true needs numbered actions; real ones (policy.kind=gaussian) have no mask"
        )
