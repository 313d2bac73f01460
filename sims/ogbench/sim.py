"""OGBench's manipulation tasks as a simulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from sims.ogbench.sizes import sizes
from sims.workers.demonstrations import Demo, demonstrate
from sims.workers.sized_guest import SizedGuestSim


@dataclass(frozen=True)
class OGBenchSim(SizedGuestSim):
    """A table of OGBench with a UR5e arm; `sims.ogbench.guest.OGBench` runs on the other side.

    Args:
        scene: cube-single, cube-double, cube-triple, cube-quadruple, scene, puzzle-3x3 or puzzle-4x4.
        chunk: control steps (20 Hz) per decision, executed open loop.
        max_steps: control steps after which an episode is cut.
        image_size: pixels a side of the image of camera "front", by ray casting; 0: no images.
    """

    scene: str = "cube-single"
    chunk: int = 1
    max_steps: int = 200
    image_size: int = 0

    guest: ClassVar[str] = "sims.ogbench.guest:OGBench"
    environment: ClassVar[str | None] = ".venv-robots"
    make_target: ClassVar[str | None] = "robots"

    def sizes(self) -> dict[str, Any]:
        return sizes(self.scene, self.chunk)

    def stepwise(self) -> OGBenchSim:
        return replace(self, chunk=1)

    def demonstrate(self, seeds: Sequence[int], noise: float = 0.0) -> list[Demo]:
        """Record the expert from the states of `seeds`: (raw observation, chunk [chunk, 5]) from every control step.

        Args:
            seeds: of the initial states.
            noise: standard deviation of what is added to the executed actions, in actions.
        """
        return demonstrate(self.stepwise(), seeds, self.chunk, noise)
