"""Meta-World as a simulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from sims.metaworld.sizes import LONGEST, sizes
from sims.workers.demonstrations import Demo, demonstrate
from sims.workers.sized_guest import SizedGuestSim


@dataclass(frozen=True)
class MetaWorldSim(SizedGuestSim):
    """Tasks of Meta-World with its scripted experts; `sims.metaworld.guest.MetaWorld` runs on the other side.

    Args:
        task: one of the 50 names such as "reach-v3", several joined by "+", or MT10, MT25, MT50, ML10. In ML10 the
            goal is hidden, and held-out states are of its five test tasks.
        chunk: control steps (80 Hz) per decision, executed open loop.
        max_steps: control steps after which an episode is cut, at most 500.
        image_size: pixels a side of the image of Meta-World's camera "corner2", by ray casting; 0: no images.
        dense_reward: coefficient of Meta-World's own reward of every control step, beside 1 for the success.
    """

    task: str
    chunk: int = 1
    max_steps: int = LONGEST
    image_size: int = 0
    dense_reward: float = 0.0

    guest: ClassVar[str] = "sims.metaworld.guest:MetaWorld"
    environment: ClassVar[str | None] = ".venv-metaworld"
    make_target: ClassVar[str | None] = "metaworld"

    def sizes(self) -> dict[str, Any]:
        return sizes(self.chunk)

    def stepwise(self) -> MetaWorldSim:
        return replace(self, chunk=1)

    def demonstrate(self, seeds: Sequence[int], noise: float = 0.0) -> list[Demo]:
        """Record the expert from the states of `seeds`: (raw observation, chunk [chunk, 4]) from every control step.

        The expert may take LONGEST control steps, whatever max_steps is.

        Args:
            seeds: of the initial states.
            noise: standard deviation of what is added to the executed actions, in actions.
        """
        return demonstrate(replace(self, chunk=1, max_steps=LONGEST), seeds, self.chunk, noise)
