"""PushT as a simulator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from sims.pusht.sizes import sizes
from sims.workers.chunk_guest import ChunkGuestSim


@dataclass(frozen=True)
class PushTSim(ChunkGuestSim):
    """A disc pushes a T-shaped block onto its goal; `sims.pusht.guest.PushT` runs on the other side.

    Args:
        max_steps: control steps (10 Hz) after which an episode is cut.
        chunk: control steps per decision, executed open loop.
        image_size: pixels a side of the package's own image; 0: no images.
    """

    max_steps: int = 300

    guest: ClassVar[str] = "sims.pusht.guest:PushT"
    environment: ClassVar[str | None] = ".venv-robots"
    make_target: ClassVar[str | None] = "robots"

    def sizes(self) -> dict[str, Any]:
        return sizes(self.chunk)
