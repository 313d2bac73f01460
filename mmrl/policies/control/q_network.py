"""Q-networks: a value for each numbered action, and epsilon-greedy actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from mmrl.core.batch import Batch
from mmrl.core.rng import Noise
from mmrl.core.types import Observation, PolicyOutput, Sampling
from mmrl.ops.choice import inverse_cdf
from mmrl.policies import policy_folder
from mmrl.policies.base import Action, Policy, require_inputs
from mmrl.policies.control.encoder import ObservationEncoder, encode_single, perceptron
from mmrl.policies.control.heads import Choices
from mmrl.policies.control.policy import MASK


@dataclass(frozen=True)
class EpsilonGreedy(Choices):
    """With probability 1 - epsilon the action of largest Q, else a uniform legal one; choices are ids [N, 1].

    p(a) = epsilon / (number of legal actions) + (1 - epsilon) [a = argmax Q]; 0 for an action that is not legal.
    """

    q: Tensor  # [N, A], -inf at actions that are not legal
    epsilon: Tensor  # [N] in [0, 1]

    @property
    def probabilities(self) -> Tensor:  # [N, A]
        legal = (self.q > -torch.inf).float()
        uniform = legal / legal.sum(-1, keepdim=True)
        greedy = torch.zeros_like(uniform).scatter(1, self.mode(), 1.0)
        return torch.lerp(greedy, uniform, self.epsilon[:, None])

    def sample(self, noise: Noise) -> Tensor:
        """Ids by the inverse CDF at a uniform draw."""
        return inverse_cdf(self.probabilities, noise.uniform().to(self.q.device))[:, None]

    def logprobs(self, action: Tensor) -> Tensor:
        return self.probabilities.gather(1, action).log()

    def entropy(self) -> Tensor:
        return torch.special.entr(self.probabilities).sum(-1, keepdim=True)

    def mode(self) -> Tensor:
        return self.q.argmax(-1, keepdim=True)

    def mean(self) -> Tensor:
        raise ValueError(
            "sampling.decode=mean needs ordered choices; a Q-network's actions are numbered: take decode=argmax"
        )

    def truncate(self, sampling: Sampling) -> EpsilonGreedy:
        raise ValueError(
            f"an epsilon-greedy policy cannot drop unlikely choices (sampling.top_k={sampling.top_k}, sampling.top_p="
            f"{sampling.top_p}, sampling.min_p={sampling.min_p}); lower sampling.temperature, its epsilon, instead"
        )


class QNetworkPolicy(Policy):
    """Q(s, a) of every numbered action by one multilayer perceptron; acts epsilon-greedily.

    `sampling.temperature` is epsilon: at 1 actions are uniform, and a schedule lowers it. `decode=argmax` is greedy.
    Dueling: Q(s, a) = V(s) + A(s, a) - mean_a' A(s, a'), with a perceptron for V and one for A after the shared
    encoder. Source: Wang et al., Dueling Network Architectures for Deep Reinforcement Learning, 2016, equation 9,
    arXiv:1511.06581.

    Args:
        observation_dims: length of the state vector; None without one.
        actions: A, how many actions there are.
        hidden: widths of the hidden layers, with rectified linear units.
        dueling: estimate the state's value and the advantages of actions apart.
        image_size: of the observation "image", uint8: S for [S, S, 3], or [H, W, C]; None without one.
        image_features: width of the image features.
        action_mask: the observation "action_mask" says which actions are legal; others are neither taken nor the
            largest of a target.
        path: folder that `save_pretrained` wrote; its settings replace all others.
    """

    def __init__(
        self,
        observation_dims: int | None = None,
        actions: int | None = None,
        hidden: Sequence[int] = (256, 256),
        dueling: bool = False,
        image_size: int | list[int] | None = None,
        image_features: int = 512,
        action_mask: bool = False,
        path: str | None = None,
    ):
        super().__init__()
        self.config = policy_folder.resolve(locals(), path, sizes=("observation_dims", "actions"))
        options = SimpleNamespace(**self.config)
        if not isinstance(options.actions, int) or options.actions < 1:
            raise ValueError(
                f"policy.actions must be a whole number from 1 on (or give policy.path), got {options.actions}: a "
                "Q-network has one value for each numbered action"
            )
        self.actions, self.reads_mask = options.actions, options.action_mask
        self.encoder = ObservationEncoder(options.observation_dims, "state", options.image_size, options.image_features)
        widths = [self.encoder.width, *options.hidden]
        self.body, self.head = perceptron(widths, nn.ReLU), nn.Linear(widths[-1], self.actions)
        self.value_body = perceptron(widths, nn.ReLU) if options.dueling else None
        self.value_head = nn.Linear(widths[-1], 1) if options.dueling else None
        policy_folder.load(path, self)

    def q_values(self, observation: Mapping[str, Tensor]) -> Tensor:
        """Compute Q [N, A] from collated inputs, with gradient."""
        features = self.encoder(observation)
        q = self.head(self.body(features)).float()
        if self.value_body is None or self.value_head is None:
            return q
        return self.value_head(self.value_body(features)).float() + q - q.mean(-1, keepdim=True)

    def legal_q_values(self, observation: Mapping[str, Tensor]) -> Tensor:
        """As `q_values`, with -inf at actions that are not legal; where none is, as after an end, all are."""
        q = self.q_values(observation)
        if not self.reads_mask:
            return q
        legal = observation[MASK] != 0
        return q.masked_fill(~legal & legal.any(-1, keepdim=True), -torch.inf)

    def check_spaces(self, observation_space: Space, action_space: Any) -> None:
        """Refuse a simulator with other observations or actions than this policy."""
        self.encoder.check_space(observation_space)
        has_mask = isinstance(observation_space, spaces.Dict) and MASK in observation_space.spaces
        if self.reads_mask and not has_mask:
            raise ValueError(f"policy.action_mask=true, but the simulator's observations {observation_space} have none")
        fits = isinstance(action_space, spaces.Discrete) and action_space.n == self.actions and action_space.start == 0
        if not fits:
            raise ValueError(
                f"the policy values {self.actions} numbered actions, but the simulator takes {action_space}; set "
                "policy.actions to fit"
            )

    def check_sampling(self, sampling: Sampling) -> None:
        super().check_sampling(sampling)
        if sampling.decode == "sample" and sampling.temperature > 1:
            raise ValueError(
                f"sampling.temperature={sampling.temperature} is the epsilon of an epsilon-greedy policy, which is at "
                "most 1; set a number in (0, 1], or decode=argmax for greedy actions"
            )

    def encode(self, raw: Mapping[str, Any]) -> Observation:
        return encode_single(raw, self)

    def encode_batch(self, raw: Mapping[str, Any]) -> dict[str, Tensor]:
        encoded = self.encoder.encode_batch(raw, self)
        if self.reads_mask:
            require_inputs(raw, [MASK], self)
            encoded[MASK] = torch.from_numpy(np.array(raw[MASK], dtype=np.int8))
            if encoded[MASK].shape[1:] != (self.actions,):
                shape = tuple(encoded[MASK].shape[1:])
                raise ValueError(f"observation {MASK!r} has shape {shape}, the policy reads ({self.actions},)")
        return encoded

    @torch.no_grad()
    def act(self, observation: Mapping[str, Any], sampling: Sampling, noise: Noise) -> Action:
        self.check_sampling(sampling)
        q = self.legal_q_values(observation)
        choices = EpsilonGreedy(q, q.new_full((len(q),), min(sampling.temperature, 1.0)))
        if sampling.truncated:
            choices = choices.truncate(sampling)
        action = choices.draw(sampling, noise)
        logprobs = choices.logprobs(action)
        return Action(action, logprobs, torch.ones_like(logprobs, dtype=torch.bool), action[:, 0].tolist())

    def act_uniformly(self, observation: Mapping[str, Any], noise: Noise) -> Action:
        """Sample legal actions in N contexts, uniformly: epsilon is 1."""
        return self.act(observation, Sampling(temperature=1.0), noise)

    def encode_demonstration(self, raw: Mapping[str, Any], output: Any) -> Tensor:
        """Convert a simulator's action to the stored choice."""
        return torch.as_tensor(output, dtype=torch.long).reshape(1)

    def forward(self, batch: Batch) -> PolicyOutput:
        choices = EpsilonGreedy(self.legal_q_values(batch.observation()), batch["temperature"].clamp(max=1.0))
        return PolicyOutput(choices.logprobs(batch["action"]), choices.entropy())

    def save_pretrained(self, folder: str | Path) -> None:
        policy_folder.save(folder, self.config, self)
