"""The SO-101 arm as a simulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from sims.so101.sizes import sizes
from sims.workers.demonstrations import Demo, demonstrate
from sims.workers.sized_guest import SizedGuestSim


@dataclass(frozen=True)
class SO101Sim(SizedGuestSim):
    """An SO-101 arm picks a cube up and puts it on a place; `sims.so101.guest.SO101` runs on the other side.

    Args:
        chunk: control steps (10 Hz) per decision, executed open loop.
        max_steps: control steps after which an episode is cut.
        image_size: pixels a side of the image of camera "front", by ray casting; 0: no images.
    """

    chunk: int = 1
    max_steps: int = 100
    image_size: int = 0

    guest: ClassVar[str] = "sims.so101.guest:SO101"
    environment: ClassVar[str | None] = ".venv-robots"
    make_target: ClassVar[str | None] = "robots"

    def sizes(self) -> dict[str, Any]:
        return sizes(self.chunk)

    def stepwise(self) -> SO101Sim:
        return replace(self, chunk=1)

    def demonstrate(self, seeds: Sequence[int], noise: float = 0.0) -> list[Demo]:
        """Record the expert from the states of `seeds`: (raw observation, chunk [chunk, 4]) from every control step.

        Args:
            seeds: of the initial states.
            noise: standard deviation of what is added to the executed actions, in actions.
        """
        return demonstrate(self.stepwise(), seeds, self.chunk, noise)
