"""Meta-World as a simulator."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from sims.workers.guest import GuestSim

_LONGEST = 500  # control steps


@dataclass(frozen=True)
class MetaWorldSim(GuestSim):
    """Tasks of Meta-World with its scripted experts; `sims.metaworld.guest.MetaWorld` runs on the other side.

    Args:
        task: one of the 50 names such as "reach-v3", or MT10, MT25, MT50, ML10. In ML10 the goal is hidden, and
            held-out states are of its five test tasks.
        chunk: control steps (80 Hz) per decision, executed open loop.
        max_steps: control steps after which an episode is cut, at most 500.
        image_size: pixels a side of the image of Meta-World's camera "corner2", by ray casting; 0: no images.
        dense_reward: coefficient of Meta-World's own reward of every control step, beside 1 for the success.
    """

    task: str
    chunk: int = 1
    max_steps: int = _LONGEST
    image_size: int = 0
    dense_reward: float = 0.0

    guest: ClassVar[str] = "sims.metaworld.guest:MetaWorld"
    environment: ClassVar[str | None] = ".venv-metaworld"
    make_target: ClassVar[str | None] = "metaworld"

    def stepwise(self) -> MetaWorldSim:
        return replace(self, chunk=1)
