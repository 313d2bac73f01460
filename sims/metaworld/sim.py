"""Meta-World as a simulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from mmrl.datasets.recording import ExpertActor, record
from sims.metaworld.sizes import LONGEST, sizes
from sims.workers.guest import GuestSim
from sims.workers.python import find_python
from sims.workers.sim import check_workers

_TRIES = 5
_NOISE_STEP = 0.1  # in actions, added at each further try


@dataclass(frozen=True)
class MetaWorldSim(GuestSim):
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

    def __post_init__(self) -> None:
        check_workers(self.workers, self.timeout_s)
        try:
            find_python(self.python, self.environment, self.make_target)
        except ValueError:
            if self.python is not None:
                raise
            return  # a configuration is read without Meta-World; `make` raises
        super().__post_init__()

    def sizes(self) -> dict[str, Any]:
        return sizes(self.chunk)

    def stepwise(self) -> MetaWorldSim:
        return replace(self, chunk=1)

    def demonstrate(self, seeds: Sequence[int], noise: float = 0.0) -> list[list[tuple[dict[str, Any], np.ndarray]]]:
        """Record the expert from the states of `seeds`: (raw observation, chunk [chunk, 4]) from every control step.

        The expert may take LONGEST control steps, whatever max_steps is. From a state where it fails it tries again
        with more noise.

        Args:
            seeds: of the initial states.
            noise: standard deviation of what is added to the executed actions, in actions.

        Raises:
            RuntimeError: the expert failed from a state at every try.
        """
        sim, found, left = replace(self.stepwise(), max_steps=LONGEST), {}, list(dict.fromkeys(seeds))
        for attempt in range(_TRIES):
            make_actor = partial(ExpertActor, sim, noise=noise + _NOISE_STEP * attempt)
            for batch in record(sim, left, make_actor):
                found |= {episode.seed: episode for episode in batch.episodes if episode.success}
            left = [seed for seed in left if seed not in found]
        if left:
            raise RuntimeError(f"Meta-World's expert failed from {len(left)} states, seed {left[0]} is the first")
        return [[(step.raw, step.output) for step in found[seed].decisions(self.chunk, 1)] for seed in seeds]
