"""Actors for off-policy actor-critic methods: actions in a box, differentiable with respect to the parameters."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from gymnasium import Space, spaces
from torch import Tensor, nn
from torch.nn.functional import softplus

from mmrl.core.batch import Batch
from mmrl.core.rng import Noise
from mmrl.core.types import Observation, PolicyOutput, Sampling
from mmrl.policies import policy_folder
from mmrl.policies.base import Action, Policy
from mmrl.policies.control.encoder import ObservationEncoder, encode_single, perceptron
from mmrl.policies.control.heads import Choices, Gaussian, Head


@dataclass(frozen=True)
class ActionSample:
    """Reparameterised actions of a policy in N contexts, with gradient."""

    action: Tensor  # [N, A] in [-1, 1]
    logprobs: Tensor  # [N, 1] nats; 0 for a deterministic actor


class ActorPolicy(Policy):
    """Actor for a Q-function: an encoder, a multilayer perceptron and an action in the box [low, high].

    Args:
        observation_dims: length of the state vector; None without one.
        actions: A, dimensions of the action; of a simulator that takes a chunk, of all its steps together.
        low: smallest action that the simulator is given, for each dimension or for all.
        high: largest one.
        hidden: widths of the hidden layers, with rectified linear units.
        state: name of the observation that is the state vector.
        image_size: of the observation "image", uint8: S for [S, S, 3], or [H, W, C]; None without one.
        image_features: width of the image features.
        action_shape: shape of the simulator's action; [A] by default.
        normalize_observations: bring the state vector to mean 0 and variance 1, with running statistics that are saved
            with the policy (`RunningStatistics`).
        path: folder that `save_pretrained` wrote; its settings replace all others.
    """

    encoder: ObservationEncoder
    low: Tensor
    high: Tensor

    def __init__(
        self,
        observation_dims: int | None = None,
        actions: int | None = None,
        low: float | list[float] = -1.0,
        high: float | list[float] = 1.0,
        hidden: Sequence[int] = (256, 256),
        state: str = "state",
        image_size: int | list[int] | None = None,
        image_features: int = 50,
        action_shape: Sequence[int] | None = None,
        normalize_observations: bool = False,
        path: str | None = None,
        **options: Any,
    ):
        super().__init__()
        self.config = policy_folder.resolve(locals(), path, sizes=("observation_dims", "actions"))
        options = SimpleNamespace(**{"normalize_observations": False, **self.config})  # older folders do not have it
        if not options.actions:
            raise ValueError(f"policy.actions must be at least 1 (or give policy.path), got {options.actions}")
        self.actions, self.action_shape = options.actions, tuple(options.action_shape or [options.actions])
        if math.prod(self.action_shape) != self.actions:
            raise ValueError(f"policy.action_shape={self.action_shape} has not policy.actions={self.actions} entries")
        self.encoder = ObservationEncoder(
            options.observation_dims,
            options.state,
            options.image_size,
            options.image_features,
            options.normalize_observations,
        )
        widths = [self.encoder.width, *options.hidden]
        self.actor = perceptron(widths, nn.ReLU)
        self.head = self._head(widths[-1])
        for name, bound in (("low", options.low), ("high", options.high)):
            value = torch.as_tensor(bound).float().expand(self.actions).clone()
            if not value.isfinite().all():
                raise ValueError(f"policy.{name} must be finite, got {bound}: an actor in a box needs its bounds")
            self.register_buffer(name, value, persistent=False)
        policy_folder.load(path, self)

    @abstractmethod
    def _head(self, features: int) -> nn.Module: ...

    @abstractmethod
    def _choices(self, features: Tensor, temperature: Tensor) -> Choices: ...

    @abstractmethod
    def rsample(self, features: Tensor, noise: Tensor) -> ActionSample:
        """Reparameterised sample given `features` [N, F] and standard normal noise [N, A], with gradient."""

    @abstractmethod
    def to_action(self, choice: Tensor) -> Tensor:
        """Convert stored choices [N, A] to actions in [-1, 1]."""

    @abstractmethod
    def from_action(self, action: Tensor) -> Tensor:
        """Convert actions in [-1, 1] to stored choices: the inverse of `to_action`."""

    def features(self, observation: Mapping[str, Tensor]) -> Tensor:
        """Compute the features [N, F] of actor and critic from collated inputs."""
        return self.encoder(observation)

    def count_rows(self, batch: Batch, total: Callable[[Tensor], Tensor]) -> None:
        self.encoder.count_rows(batch, total)

    def include_rows(self) -> None:
        self.encoder.include_rows()

    def check_spaces(self, observation_space: Space, action_space: Any) -> None:
        """Refuse a simulator with other state or action spaces than this policy."""
        self.encoder.check_space(observation_space)
        fits = isinstance(action_space, spaces.Box) and action_space.shape == self.action_shape
        low, high = (bound.cpu().numpy().reshape(self.action_shape) for bound in (self.low, self.high))
        if not fits or bool((low != action_space.low).any()) or bool((high != action_space.high).any()):
            raise ValueError(
                f"the policy gives {self.action_shape} reals in [{self.low.tolist()}, {self.high.tolist()}], but the "
                f"simulator takes {action_space}; set policy.actions, policy.low and policy.high to fit"
            )

    def encode(self, raw: Mapping[str, Any]) -> Observation:
        return encode_single(raw, self)

    def encode_batch(self, raw: Mapping[str, Any]) -> dict[str, Tensor]:
        return self.encoder.encode_batch(raw, self)

    @torch.no_grad()
    def act(self, observation: Mapping[str, Any], sampling: Sampling, noise: Noise) -> Action:
        features = self.features(observation)
        choices = self._choices(features, features.new_full((len(features),), sampling.temperature))
        if sampling.truncated:
            choices = choices.truncate(sampling)
        action = choices.draw(sampling, noise)
        return self._build_action(action, choices.logprobs(action))

    @torch.no_grad()
    def act_uniformly(self, observation: Mapping[str, Any], noise: Noise) -> Action:
        """Sample actions in N contexts, uniformly in the box."""
        rows = len(next(iter(observation.values())))
        action = (2 * noise.uniform(self.actions) - 1).to(self.device)
        logprobs = action.new_full((rows, 1), -self.actions * math.log(2))
        return self._build_action(self.from_action(action)[:, None], logprobs)

    def _build_action(self, action: Tensor, logprobs: Tensor) -> Action:
        share = (self.to_action(action[:, 0]) + 1) / 2
        actions = torch.lerp(self.low, self.high, share).view(-1, *self.action_shape).cpu().numpy()
        return Action(action, logprobs, torch.ones_like(logprobs, dtype=torch.bool), list(actions))

    def encode_demonstration(self, raw: Mapping[str, Any], output: Any) -> Tensor:
        """Convert a simulator's action to the stored choice; values outside the box are clipped to it."""
        action = torch.as_tensor(output, dtype=torch.float32).flatten()
        low, high = self.low.cpu(), self.high.cpu()
        return self.from_action((2 * (action - low) / (high - low) - 1).clamp(-1, 1))[None]

    def forward(self, batch: Batch) -> PolicyOutput:
        choices = self._choices(self.features(batch.observation()), batch["temperature"])
        return PolicyOutput(choices.logprobs(batch["action"]), choices.entropy())

    def save_pretrained(self, folder: str | Path) -> None:
        policy_folder.save(folder, self.config, self)


LOG_STD_RANGE = (-20.0, 2.0)


@dataclass(frozen=True)
class Squashed(Gaussian):
    """a = tanh(u), u ~ N(loc, exp(log_std)^2), dimensions independent; choices are u [N, 1, A].

    log p(a) = log N(u) - sum_k log(1 - tanh(u_k)^2), with log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2 u)), which
    neither under- nor overflows. Source: Soft Actor-Critic Algorithms and Applications, 2018, appendix C,
    arXiv:1812.05905. The entropy is that of the Gaussian before squashing: that of the squashed one has no closed form.
    """

    def rsample(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Reparameterised actions [N, A] in (-1, 1) and their log-probs [N, 1], from standard normal noise [N, A]."""
        unbounded = torch.addcmul(self.loc, self.log_std.exp(), noise)
        return unbounded.tanh(), self._logprobs(unbounded, noise)

    def logprobs(self, action: Tensor) -> Tensor:
        return self._logprobs(action[:, 0], (action[:, 0] - self.loc) * (-self.log_std).exp())

    def _logprobs(self, unbounded: Tensor, score: Tensor) -> Tensor:
        slope = 2 * (math.log(2) - unbounded - softplus(-2 * unbounded))
        density = 0.5 * score.square() + self.log_std + slope + 0.5 * math.log(2 * math.pi)
        return -density.sum(dim=-1, keepdim=True)

    def truncate(self, sampling: Sampling) -> Squashed:
        raise ValueError(
            f"a squashed Gaussian cannot drop unlikely choices (sampling.top_k={sampling.top_k}, "
            f"sampling.top_p={sampling.top_p}, sampling.min_p={sampling.min_p}); lower sampling.temperature instead"
        )


class SquashedHead(Head):
    """Linear mean and log standard deviation, both functions of the features.

    Args:
        features: F, width of the input.
        actions: A, dimensions of the action.
    """

    def __init__(self, features: int, actions: int):
        super().__init__()
        self.linear = nn.Linear(features, 2 * actions)

    def forward(self, features: Tensor, temperature: Tensor | None = None) -> Squashed:
        loc, log_std = self.linear(features).float().chunk(2, dim=-1)
        log_std = log_std.clamp(*LOG_STD_RANGE)
        return Squashed(loc, log_std if temperature is None else log_std + temperature.log()[:, None])


class SquashedPolicy(ActorPolicy):
    """SAC actor: a tanh-squashed Gaussian with a state-dependent std. Source: arXiv:1801.01290."""

    def _head(self, features: int) -> SquashedHead:
        return SquashedHead(features, self.actions)

    def _choices(self, features: Tensor, temperature: Tensor) -> Squashed:
        return self.head(self.actor(features), temperature)

    def rsample(self, features: Tensor, noise: Tensor) -> ActionSample:
        return ActionSample(*self.head(self.actor(features)).rsample(noise))

    def to_action(self, choice: Tensor) -> Tensor:
        return choice.tanh()

    def from_action(self, action: Tensor) -> Tensor:
        return action.clamp(-1 + 1e-6, 1 - 1e-6).atanh()


class DeterministicPolicy(ActorPolicy):
    """TD3 actor: one action per state, with Gaussian exploration noise. Source: arXiv:1802.09477.

    Args:
        exploration_noise: standard deviation of that noise, with the box scaled to [-1, 1]; temperature multiplies it.
    """

    def __init__(self, *args: Any, exploration_noise: float = 0.1, **kwargs: Any):
        if exploration_noise <= 0:
            raise ValueError(
                f"policy.exploration_noise must be > 0, got {exploration_noise}; for no noise use decode=argmax"
            )
        super().__init__(*args, exploration_noise=exploration_noise, **kwargs)

    def _head(self, features: int) -> nn.Linear:
        self.exploration_noise = self.config["exploration_noise"]
        return nn.Linear(features, self.actions)

    def _choices(self, features: Tensor, temperature: Tensor) -> Gaussian:
        loc = self._action(features)
        return Gaussian(loc, (temperature.log() + math.log(self.exploration_noise))[:, None].expand_as(loc))

    def _action(self, features: Tensor) -> Tensor:
        return self.head(self.actor(features)).float().tanh()

    def rsample(self, features: Tensor, noise: Tensor) -> ActionSample:
        return ActionSample(self._action(features), features.new_zeros(len(features), 1))

    def to_action(self, choice: Tensor) -> Tensor:
        return choice.clamp(-1, 1)

    def from_action(self, action: Tensor) -> Tensor:
        return action
