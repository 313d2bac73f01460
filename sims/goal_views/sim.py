"""Goal-view rooms as a simulator, with demonstrations that say where the target is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from sims.goal_views.tasks import TaskGenerator
from sims.gym.sim import GymSim

Demo = list[tuple[dict[str, Any], int]]


@dataclass(frozen=True)
class GoalViewSim(GymSim):
    """`GoalViewEnv` of many seeds; the tasks of a seed are named by difficulty and event."""

    id: str = "sims.goal_views:GoalView-v0"

    stated: ClassVar[Sequence[str]] = ("scores",)

    @property
    def name(self) -> str:  # type: ignore[override]
        return "goal_views"

    @cached_property
    def generator(self) -> TaskGenerator:
        """Draws the tasks."""
        options = {name: value for name, value in self.kwargs.items() if name != "render_mode"}
        return TaskGenerator(**options)

    def task_of(self, seed: int) -> str:
        return "_".join(self.generator.kind_of(seed))

    def demonstrate(self, seeds: Sequence[int]) -> list[Demo]:
        """Episodes of the expert, which plans with the whole layout.

        Returns:
            Per decision (observation, action): the observation has `target_visible`, whether the target is in view, and
            `target_centroid`, of its pixels (column, row) in [0, 1], beside what a policy reads.
        """
        env = self.make_env()
        episodes = []
        for seed in seeds:
            observation, _ = env.reset(seed=int(seed))
            steps: Demo = []
            ended = False
            while not ended:
                visible, centroid = env.unwrapped.locate_target()  # type: ignore[attr-defined]
                labels = {"target_visible": np.bool_(visible), "target_centroid": np.array(centroid, np.float32)}
                action = env.unwrapped.plan()  # type: ignore[attr-defined]
                steps.append(({**observation, **labels}, action))
                observation, _, terminated, truncated, _ = env.step(action)
                ended = terminated or truncated
            episodes.append(steps)
        env.close()
        return episodes

    def expert(self, env: Any) -> np.ndarray:
        """The expert's next action in each environment [n]."""
        return np.array([each.get_wrapper_attr("plan")() for each in env.envs])
