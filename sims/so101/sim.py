"""The SO-101 arm as a simulator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from sims.so101.sizes import sizes
from sims.workers.chunk_guest import ChunkGuestSim


@dataclass(frozen=True)
class SO101Sim(ChunkGuestSim):
    """An SO-101 arm picks a cube up and puts it on a place; `sims.so101.guest.SO101` runs on the other side.

    Args:
        max_steps: control steps (10 Hz) after which an episode is cut.
        chunk: control steps per decision, executed open loop.
        image_size: pixels a side of the image of camera "front", by ray casting; 0: no images.
    """

    max_steps: int = 100

    guest: ClassVar[str] = "sims.so101.guest:SO101"
    environment: ClassVar[str | None] = ".venv-robots"
    make_target: ClassVar[str | None] = "robots"

    def sizes(self) -> dict[str, Any]:
        return sizes(self.chunk)
