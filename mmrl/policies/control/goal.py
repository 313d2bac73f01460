"""Goal-conditioned actor of offline methods: the state and a goal side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from mmrl.policies.control.encoder import perceptron
from mmrl.policies.control.tanh_mean import TanhMeanHead, TanhMeanPolicy


class GoalPolicy(TanhMeanPolicy):
    """Actor N(tanh(f(s, g)), std), std a parameter, of a state s and a goal g, a vector.

    The features of actor and critics are those of the state, then the goal. A recording needs no goal: hindsight gives
    one to each row (`mmrl.data.offline.hindsight`). A simulator observes it.

    Args:
        goal_dims: G, length of a goal; None for the length of the state vector.
        goal: name of the simulator's observation that is the goal.
    """

    needs_goal = True  # to act

    def __init__(self, *args: Any, goal_dims: int | None = None, goal: str = "goal", **kwargs: Any):
        super().__init__(*args, goal_dims=goal_dims, goal=goal, **kwargs)

    def _head(self, features: int) -> TanhMeanHead:
        dims, size = self.encoder.observation_dims, self.config["goal_dims"]
        self.goal_dims, self.goal = dims if size is None else size, self.config["goal"]
        if not dims or not self.goal_dims or self.goal_dims < 1:
            raise ValueError(
                f"policy.goal_dims={size}, policy.observation_dims={dims}: a goal-conditioned policy needs a state "
                "vector and a goal of at least one number"
            )
        if self.encoder.statistics is not None and self.goal_dims != dims:
            raise ValueError(
                f"policy.normalize_observations=true brings goals to the scale of states, but policy.goal_dims="
                f"{self.goal_dims} is not policy.observation_dims={dims}; set policy.normalize_observations=false"
            )
        self.actor = perceptron([self.encoder.width + self.context_dims, *self.config["hidden"]], nn.ReLU)
        return super()._head(features)

    @property
    def context_dims(self) -> int:
        """Length of what the actor reads beside the state."""
        return self.goal_dims

    def features(self, observation: Mapping[str, Tensor]) -> Tensor:
        """State features and goal [N, F + G]; `observation` has the goal as "goal"."""
        if "goal" not in observation:
            raise ValueError(
                f"policy {type(self).__name__}: no goal among {sorted(observation)}; offline it comes from "
                "data.replay=HindsightReplayBuffer, in a simulator from its observation, named by policy.goal"
            )
        return torch.cat((self.encoder(observation), self.scale_goal(observation["goal"])), dim=-1)

    def scale_goal(self, goal: Tensor) -> Tensor:
        """Goals [N, G] in the scale of the state's features."""
        return goal if self.encoder.statistics is None else self.encoder.statistics(goal)

    def encode_batch(self, raw: Mapping[str, Any]) -> dict[str, Tensor]:
        columns = super().encode_batch(raw)
        if self.goal in raw:
            columns["goal"] = torch.from_numpy(np.array(raw[self.goal], dtype=np.float32))
            if columns["goal"].shape[1:] != (self.goal_dims,):
                raise ValueError(
                    f"policy.goal_dims={self.goal_dims}: observation {self.goal!r} has shape "
                    f"{tuple(columns['goal'].shape[1:])}; set policy.goal_dims, or name another one by policy.goal"
                )
        return columns

    def check_spaces(self, observation_space: Space, action_space: Any) -> None:
        super().check_spaces(observation_space, action_space)
        entries = observation_space.spaces if isinstance(observation_space, spaces.Dict) else {}
        space = entries.get(self.goal)
        if (space is None and self.needs_goal) or (space is not None and space.shape != (self.goal_dims,)):
            raise ValueError(
                f"the policy reads a goal of {self.goal_dims} numbers from observation {self.goal!r}, but the "
                f"simulator's observations are {observation_space}; set policy.goal and policy.goal_dims"
            )
