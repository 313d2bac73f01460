"""MiniGrid and BabyAI: an instruction and an image of the agent's view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import gymnasium

from mmrl.core.installation.optional_packages import import_optional
from sims.gym.bot import BotWrapper, plan_actions
from sims.gym.seen_sim import ImageGymSim
from sims.workers.demonstrations import Demo, demonstrate

TILE_PIXELS = 8  # a side; the agent sees 7 x 7 tiles


@dataclass(frozen=True)
class MiniGridSim(ImageGymSim):
    """Grid worlds with a mission; seven actions: turn left, turn right, forward, pick up, drop, toggle, done.

    Levels of BabyAI have an expert, the package's bot.

    Args:
        id: for example "MiniGrid-Empty-5x5-v0" or "BabyAI-GoToRedBall-v0"; the package minigrid registers them.
        image_size: pixels a side; 56 shows every tile as 8 x 8 pixels.
        whole: show the whole grid instead of the agent's view.
    """

    packages: ClassVar[tuple[str, ...]] = ("minigrid",)

    image_size: int = 56
    whole: bool = False

    def __post_init__(self) -> None:
        import_optional("minigrid", "sim=minigrid")  # registers the environments
        super().__post_init__()

    @property
    def renders_images(self) -> bool:
        return False  # the packages' own pixels, the same everywhere

    def with_images(self, env: gymnasium.Env) -> gymnasium.Env:
        from minigrid.wrappers import RGBImgObsWrapper, RGBImgPartialObsWrapper

        wrapper = RGBImgObsWrapper if self.whole else RGBImgPartialObsWrapper
        return wrapper(BotWrapper(env) if self.has_bot else env, tile_size=TILE_PIXELS)

    @property
    def has_bot(self) -> bool:
        return self.id.startswith("BabyAI-")

    def __getattr__(self, name: str) -> Any:
        if name == "expert" and self.has_bot:
            return plan_actions
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def stepwise(self) -> MiniGridSim:
        return replace(self, chunk=1)

    def demonstrate(self, seeds: Sequence[int], noise: float = 0.0) -> list[Demo]:
        """Record the bot from the states of `seeds`: (raw observation, chunk [chunk, 1]) from every control step.

        Args:
            seeds: of the initial states.
            noise: standard deviation of what is added to the executed actions; an action is 2/7 of [-1, 1] wide.

        Raises:
            ValueError: the level is not one of BabyAI's.
        """
        if not self.has_bot:
            raise ValueError(f"sim.id={self.id!r}: BabyAI's levels alone have an expert to demonstrate them")
        return demonstrate(self.stepwise(), seeds, self.chunk, noise)

    def contract(self) -> dict:
        return super().contract() | {"whole": self.whole}
