"""MiniGrid and BabyAI: an instruction and an image of the agent's view."""

from __future__ import annotations

from dataclasses import dataclass

import gymnasium

from sims.gym.seen_sim import ImageGymSim

TILE_PIXELS = 8  # a side; the agent sees 7 x 7 tiles


@dataclass(frozen=True)
class MiniGridSim(ImageGymSim):
    """Grid worlds with a mission; seven actions: turn left, turn right, forward, pick up, drop, toggle, done.

    Args:
        id: for example "MiniGrid-Empty-5x5-v0" or "BabyAI-GoToRedBall-v0"; the package minigrid registers them.
        image_size: pixels a side; 56 shows every tile as 8 x 8 pixels.
        whole: show the whole grid instead of the agent's view.
    """

    image_size: int = 56
    whole: bool = False

    def __post_init__(self) -> None:
        try:
            import minigrid  # noqa: F401  # registers the environments
        except ImportError as error:
            raise ValueError("sim=minigrid needs the package minigrid: pip install 'mmrl-lightning[grid]'") from error
        super().__post_init__()

    @property
    def renders_images(self) -> bool:
        return False  # the packages' own pixels, the same everywhere

    def with_images(self, env: gymnasium.Env) -> gymnasium.Env:
        from minigrid.wrappers import RGBImgObsWrapper, RGBImgPartialObsWrapper

        wrapper = RGBImgObsWrapper if self.whole else RGBImgPartialObsWrapper
        return wrapper(env, tile_size=TILE_PIXELS)

    def contract(self) -> dict:
        return super().contract() | {"whole": self.whole}
