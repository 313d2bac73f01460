"""Actor on the states of a world model: it keeps belief and latent state from decision to decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from gymnasium import Space
from torch import Tensor

from mmrl.core.errors import check_at_least
from mmrl.core.rng import Noise
from mmrl.core.types import Sampling
from mmrl.policies import policy_folder
from mmrl.policies.base import Action, require_inputs
from mmrl.policies.control.actor import SquashedPolicy
from mmrl.policies.control.recurrent import MEMORY
from mmrl.policies.control.world_model.networks import WorldModelEncoder
from mmrl.policies.control.world_model.rssm import RSSM

_REMEDY = "set rollout=recurrent_replay and evaluation=recurrent_control, which bring it to the next decision"


class WorldModelPolicy(SquashedPolicy):
    """Tanh-squashed Gaussian actor on the belief and the latent state of a recurrent state-space model.

    The memory is an observation: belief, state and action of the last decision, zero at the start of an episode. `act`
    updates belief and posterior with the new observation and gives an action with the memory that follows it, which
    `mmrl.rollouts.env.recurrent_replay` brings to the next decision. Encoder and model learn from sequences of the
    replay buffer, the actor from imagined trajectories (`mmrl.learners.phases.imagination`).
    Source: Dream to Control, 2020, arXiv:1912.01603.

    Args:
        observation_dims: length of the state vector; None without one.
        actions: A, dimensions of the action.
        low: smallest action that the simulator is given, for each dimension or for all.
        high: largest one.
        hidden: widths of the actor's hidden layers, with rectified linear units.
        state: name of the observation that is the state vector.
        image_size: of the observation "image", uint8: S for [S, S, 3], or [H, W, C]; None without one.
        image_depth: channels of the first convolution.
        belief_size: D, width of the deterministic belief.
        state_size: S, width of the latent state.
        hidden_size: width of the layers inside the model.
        exploration_noise: standard deviation of the Gaussian noise on sampled actions, with the box scaled to [-1, 1].
        action_shape: shape of the simulator's action; [A] by default.
        path: folder that `save_pretrained` wrote; its settings replace all others.
    """

    encoder: WorldModelEncoder

    def __init__(
        self,
        observation_dims: int | None = None,
        actions: int | None = None,
        low: float | list[float] = -1.0,
        high: float | list[float] = 1.0,
        hidden: Sequence[int] = (400, 400, 400, 400),
        state: str = "state",
        image_size: int | list[int] | None = None,
        image_depth: int = 32,
        belief_size: int = 200,
        state_size: int = 30,
        hidden_size: int = 200,
        exploration_noise: float = 0.3,
        action_shape: Sequence[int] | None = None,
        path: str | None = None,
    ):
        config = policy_folder.resolve(locals(), path, sizes=("observation_dims", "actions"))
        belief_size, state_size, actions = config["belief_size"], config["state_size"], config["actions"]
        check_at_least(0, "policy", exploration_noise=config["exploration_noise"])
        # the actor's observation is belief and state
        names = ("actions", "low", "high", "hidden", "action_shape")
        super().__init__(observation_dims=belief_size + state_size, **{name: config[name] for name in names})
        self.config = config
        self.exploration_noise = config["exploration_noise"]
        self.encoder = WorldModelEncoder(
            config["observation_dims"], config["state"], config["image_size"], config["image_depth"]
        )
        self.rssm = RSSM(self.encoder.width, actions, belief_size, state_size, config["hidden_size"])
        self.memory_dims = belief_size + state_size + actions
        policy_folder.load(path, self)

    def check_spaces(self, observation_space: Space, action_space: Any) -> None:
        """Refuse a simulator with other observations or actions, or a rollout that does not bring the memory."""
        if getattr(action_space, "dims", None) != self.memory_dims:
            raise ValueError(f"{type(self).__name__} has a memory of {self.memory_dims} numbers: {_REMEDY}")
        super().check_spaces(observation_space, action_space.action)

    def encode_batch(self, raw: Mapping[str, Any]) -> dict[str, Tensor]:
        require_inputs(raw, [MEMORY], self)
        memory = torch.from_numpy(np.array(raw[MEMORY], dtype=np.float32))
        if memory.shape[-1] != self.memory_dims:
            raise ValueError(
                f"observation {MEMORY!r} has {memory.shape[-1]} numbers, not {self.memory_dims}: {_REMEDY}"
            )
        return super().encode_batch(raw) | {MEMORY: memory}

    def observe(self, observation: Mapping[str, Tensor], noise: Tensor) -> tuple[Tensor, Tensor]:
        """Belief [N, D] and state [N, S] after one further observation, from standard normal noise [N, S]."""
        sizes = (self.rssm.belief_size, self.rssm.state_size, self.actions)
        belief, state, action = observation[MEMORY].split(sizes, dim=-1)
        embedding = self.encoder(observation)[:, None]
        sequence = self.rssm.observe(embedding, action[:, None], noise[:, None], start=(belief, state))
        return sequence.belief[:, 0], sequence.state[:, 0]

    def features(self, observation: Mapping[str, Tensor]) -> Tensor:
        """Belief and the posterior's mean [N, D + S], without a draw."""
        rows = len(observation[MEMORY])
        nothing = observation[MEMORY].new_zeros(rows, self.rssm.state_size)
        return torch.cat(self.observe(observation, nothing), dim=-1)

    @torch.no_grad()
    def act(self, observation: Mapping[str, Any], sampling: Sampling, noise: Noise) -> Action:
        latent = self.observe(observation, noise.normal(self.rssm.state_size).to(self.device))
        features = torch.cat(latent, dim=-1)
        choices = self._choices(features, features.new_full((len(features),), sampling.temperature))
        if sampling.truncated:
            choices = choices.truncate(sampling)
        action = choices.draw(sampling, noise)
        if sampling.decode == "sample" and self.exploration_noise:
            epsilon = self.exploration_noise * noise.normal(self.actions).to(self.device)
            action = self.from_action((self.to_action(action[:, 0]) + epsilon).clamp(-1, 1))[:, None]
        return self._remember(self._build_action(action, choices.logprobs(action)), latent)

    @torch.no_grad()
    def act_uniformly(self, observation: Mapping[str, Any], noise: Noise) -> Action:
        latent = self.observe(observation, noise.normal(self.rssm.state_size).to(self.device))
        return self._remember(super().act_uniformly(observation, noise), latent)

    def _remember(self, action: Action, latent: tuple[Tensor, Tensor]) -> Action:
        """The same action, with the memory behind the simulator's numbers."""
        memory = torch.cat([*latent, self.to_action(action.action[:, 0])], dim=-1).float().cpu().numpy()
        numbers = np.asarray(action.output, dtype=np.float32).reshape(len(memory), -1)
        return replace(action, output=list(np.concatenate([numbers, memory], axis=1)))

    def split_output(self, output: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Split the output of `act` in one context: the action alone, and the memory."""
        return output[: self.actions].reshape(self.action_shape), output[self.actions :]
