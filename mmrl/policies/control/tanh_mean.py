"""Gaussian actor whose mean is in the action box: the density of recorded actions is finite at its borders too."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mmrl.policies.control.actor import ActionSample, ActorPolicy
from mmrl.policies.control.heads import Gaussian

LOG_STD_RANGE = (-5.0, 2.0)


class TanhMeanHead(nn.Module):
    """Mean tanh(linear(features)), and one log standard deviation per dimension that does not depend on the state.

    Args:
        features: F, width of the input.
        actions: A, dimensions of the action.
    """

    def __init__(self, features: int, actions: int):
        super().__init__()
        self.linear = nn.Linear(features, actions)
        self.log_std = nn.Parameter(torch.zeros(actions))

    def forward(self, features: Tensor) -> Gaussian:
        loc = self.linear(features).float().tanh()
        return Gaussian(loc, self.log_std.float().clamp(*LOG_STD_RANGE).expand_as(loc))


class TanhMeanPolicy(ActorPolicy):
    """Gaussian actor of offline methods: N(tanh(f(s)), std), std a parameter; actions are clipped to the box.

    A recorded action at the border of the box has probability 0 under a tanh-squashed Gaussian, and a finite density
    here. Source: Kostrikov et al., arXiv:2110.06169, released code policy.py (tanh of the mean, state-independent std).
    """

    def _head(self, features: int) -> TanhMeanHead:
        return TanhMeanHead(features, self.actions)

    def _choices(self, features: Tensor, temperature: Tensor) -> Gaussian:
        choices = self.head(self.actor(features))
        return Gaussian(choices.loc, choices.log_std + temperature.log()[:, None])

    def rsample(self, features: Tensor, noise: Tensor) -> ActionSample:
        choices = self.head(self.actor(features))
        action = torch.addcmul(choices.loc, choices.log_std.exp(), noise)
        return ActionSample(action.clamp(-1, 1), choices.logprobs(action[:, None]))

    def to_action(self, choice: Tensor) -> Tensor:
        return choice.clamp(-1, 1)

    def from_action(self, action: Tensor) -> Tensor:
        return action
