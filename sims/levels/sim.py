"""Gymnasium environments with levels, by id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import gymnasium

from sims.gym.sim import GymSim
from sims.levels.space import LevelSpace
from sims.levels.wrapper import LevelWrapper, find_space


@dataclass(frozen=True)
class GymLevelSim(GymSim):
    """Environments of one id, each episode of which begins at a level, a point of a box of parameters.

    The level follows from the seed of the episode (`LevelSpace`), so that it is drawn where prompts are selected and
    reaches the environment in whichever process that runs. Seeds of a plain task give uniform levels.

    Args:
        levels: lower and upper bound by parameter. Where the environment declares levels in its `metadata`
            (`mmrl_levels`), which it takes as `reset(options={"level": ...})`, other bounds of some of them; else
            attributes of the environment that are set before each reset. None: as declared.
        observe_level: whether the policy sees the level, scaled to [-1, 1], beside the environment's observation.
    """

    levels: dict[str, list[float]] | None = None
    observe_level: bool = False

    stated: ClassVar[Sequence[str]] = ("scores",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.autoreset != "disabled":
            raise ValueError(
                f"sim.autoreset={self.autoreset!r}: the level of an episode is given with its seed, so the "
                "environments must not reset themselves; set sim.autoreset=disabled"
            )

    @cached_property
    def level_space(self) -> LevelSpace:
        """The box of the parameters.

        Raises:
            ValueError: with the id, what is wrong with the levels and what helps.
        """
        env = super().make_registered()
        try:
            return find_space(env, self.levels)
        except ValueError as error:
            raise ValueError(f"sim.id={self.id!r}: {error}") from error
        finally:
            env.close()

    def make_registered(self) -> gymnasium.Env:
        space = self.level_space
        return LevelWrapper(super().make_registered(), space, self.observe_level)

    def contract(self) -> dict[str, Any]:
        """Entries that must be equal for results to be comparable: the level space too."""
        bounds = {name: list(pair) for name, pair in self.level_space.bounds.items()}
        return {**super().contract(), "levels": bounds, "observe_level": self.observe_level}
