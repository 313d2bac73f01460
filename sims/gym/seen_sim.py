"""Gymnasium environments for vision-language-action policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium

from mmrl.core.errors import check_at_least
from sims.gym.image_observations import VLAWrapper
from sims.gym.opengl import choose_gl
from sims.gym.sim import GymSim


@dataclass(frozen=True)
class ImageGymSim(GymSim):
    """A registered gymnasium environment with image observations, an instruction and action chunks.

    Args:
        instruction: given to the policy; None takes the "mission" that MiniGrid and BabyAI give.
        image_size: pixels a side.
        chunk: control steps per decision.
        frames: images stacked as channels.
        end_on_success: the episode terminates at the first success.
    """

    instruction: str | None = None
    image_size: int = 64
    chunk: int = 1
    frames: int = 1
    end_on_success: bool = True

    stated: ClassVar[Sequence[str]] = ("executed", "scores")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(1, "sim", image_size=self.image_size, chunk=self.chunk, frames=self.frames)

    @property
    def renders_images(self) -> bool:
        return True

    @property
    def reads_spaces(self) -> bool:
        return False  # those of vision-language-action policies

    def make_env(self) -> gymnasium.Env:
        self.inspect()
        env = self.with_images(self.make_registered())
        try:
            return VLAWrapper(env, self.instruction, self.image_size, self.chunk, self.frames, self.end_on_success)
        except ValueError as error:
            env.close()
            raise ValueError(f"sim.id={self.id!r}: {error}") from error

    def with_images(self, env: gymnasium.Env) -> gymnasium.Env:
        """The environment with images, where it needs more than its arguments for them."""
        return env

    def sizes(self) -> dict[str, Any]:
        env = self.make_env()
        proprio, action = env.observation_space["proprio"].shape, env.action_space.shape  # type: ignore[index]
        env.close()
        return {"action_dims": action[1], "chunk": self.chunk, "proprio_dims": proprio[0]}  # type: ignore[index]

    def contract(self) -> dict[str, Any]:
        names = ("instruction", "image_size", "chunk", "frames", "end_on_success")
        rendering = {"renderer": choose_gl(), "fast_render": self.fast_render} if self.renders_images else {}
        return super().contract() | {name: getattr(self, name) for name in names} | rendering
