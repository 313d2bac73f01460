"""Guests whose environments are chunks of control steps, with a scripted expert."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from sims.workers.demonstrations import Demo, demonstrate
from sims.workers.sized_guest import SizedGuestSim


@dataclass(frozen=True)
class ChunkGuestSim(SizedGuestSim):
    """Base class of guests of `sims.host.chunk_env.ChunkEnv` whose expert plans single control steps.

    Args:
        chunk: control steps per decision, executed open loop.
        image_size: pixels a side of the image; 0: no images.
    """

    chunk: int = field(default=1, kw_only=True)
    image_size: int = field(default=0, kw_only=True)

    def stepwise(self) -> Self:
        return replace(self, chunk=1)

    def demonstrate(self, seeds: Sequence[int], noise: float = 0.0) -> list[Demo]:
        """Record the expert from the states of `seeds`: (raw observation, chunk [chunk, A]) from every control step.

        Args:
            seeds: of the initial states.
            noise: standard deviation of what is added to the executed actions, in actions.
        """
        return demonstrate(self.stepwise(), seeds, self.chunk, noise)
