"""OGBench's manipulation tasks as a simulator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from sims.ogbench.sizes import sizes
from sims.workers.chunk_guest import ChunkGuestSim


@dataclass(frozen=True)
class OGBenchSim(ChunkGuestSim):
    """A table of OGBench with a UR5e arm; `sims.ogbench.guest.OGBench` runs on the other side.

    Args:
        scene: cube-single, cube-double, cube-triple, cube-quadruple, scene, puzzle-3x3 or puzzle-4x4.
        max_steps: control steps (20 Hz) after which an episode is cut.
        chunk: control steps per decision, executed open loop.
        image_size: pixels a side of the image of camera "front", by ray casting; 0: no images.
    """

    scene: str = "cube-single"
    max_steps: int = 200

    guest: ClassVar[str] = "sims.ogbench.guest:OGBench"
    environment: ClassVar[str | None] = ".venv-robots"
    make_target: ClassVar[str | None] = "robots"

    def sizes(self) -> dict[str, Any]:
        return sizes(self.scene, self.chunk)
