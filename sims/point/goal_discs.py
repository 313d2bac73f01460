"""Two discs whose goal is observed, and a point of another colour for videos."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from sims.point.discs import COLOURS, TwoDiscs, TwoDiscsVectorEnv, paint

_WHITE = 250.0
_PAINT = {"white": (250.0, 250.0, 250.0), "yellow": (230.0, 210.0, 40.0)}


@dataclass(frozen=True)
class GoalDiscs(TwoDiscs):
    """`TwoDiscs` with the observation `task` [2], 1 at the goal: for policies of several tasks on pictures.

    Args:
        point: colour of the point; yellow is another body.
    """

    point: Literal["white", "yellow"] = "white"
    name = "goal_discs"

    def make(self, num_envs: int) -> GoalDiscsVectorEnv:
        return GoalDiscsVectorEnv(num_envs, self)

    def sizes(self) -> dict[str, Any]:
        return {**super().sizes(), "observation_dims": len(COLOURS), "image_size": self.image_size}

    def contract(self) -> dict[str, Any]:
        return {**super().contract(), "point": self.point}


class GoalDiscsVectorEnv(TwoDiscsVectorEnv):
    """Vector environment of `GoalDiscs`."""

    sim: GoalDiscs

    def __init__(self, num_envs: int, sim: GoalDiscs):
        super().__init__(num_envs, sim)
        task = spaces.Box(0.0, 1.0, (len(COLOURS),), np.float32)
        self.single_observation_space = spaces.Dict({**self.single_observation_space.spaces, "task": task})
        self.observation_space = batch_space(self.single_observation_space, num_envs)

    def _observation(self) -> dict[str, Any]:
        observation = super()._observation()
        task = np.zeros((self.num_envs, len(COLOURS)), np.float32)
        task[:, COLOURS.index(self.sim.goal)] = 1
        if self.sim.point == "white":
            return {**observation, "task": task}
        # the point covers the share (picture - picture without it) / (white - picture without it) of a pixel
        radii = (self.sim.radius_m, self.sim.radius_m)
        bare = paint(self._places[:, 1:], radii, self.sim.image_size).astype(np.float32)
        cover = ((observation["image"] - bare) / (_WHITE - bare)).mean(-1, keepdims=True).clip(0, 1)
        image = bare + cover * (np.array(_PAINT[self.sim.point], np.float32) - bare)
        return {**observation, "image": image.round().astype(np.uint8), "task": task}
