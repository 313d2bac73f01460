"""Simulator whose chunks are played in part, and whose observations have a history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmrl.core.types import Sim
from sims.chunked.vector import ChunkVectorEnv, check_chunk


@dataclass(frozen=True)
class ChunkedSim(Sim):
    """The same simulator, control step by control step: receding-horizon execution and a history of observations.

    Source: Chi et al., "Diffusion Policy", 2023, section II-C, arXiv:2303.04137 (T_o observations, T_p predicted
    and T_a executed actions).

    Args:
        sim: the simulator.
        chunk: H, control steps that the policy predicts.
        execute: control steps that are played before the next decision; None for all.
        history: observations of the last control steps that the policy sees, the oldest first, as a first axis of
            every image and vector; the first one is repeated at the beginning. With 1 there is no such axis.
    """

    sim: Sim
    chunk: int = 8
    execute: int | None = None
    history: int = 1

    def __post_init__(self) -> None:
        check_chunk(self.chunk, self.played, self.history)

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.sim.name

    @property
    def played(self) -> int:
        """Control steps that are played per decision."""
        return self.chunk if self.execute is None else self.execute

    def make(self, num_envs: int) -> ChunkVectorEnv:
        return ChunkVectorEnv(self.sim.stepwise().make(num_envs), self.chunk, self.played, self.history)

    def sizes(self) -> dict[str, Any]:
        return {**self.sim.sizes(), "chunk": self.chunk}

    def contract(self) -> dict[str, Any]:
        options = {"chunk": self.chunk, "execute": self.played, "history": self.history}
        return {**self.sim.contract(), **options}

    def stepwise(self) -> Sim:
        return self.sim.stepwise()

    def stored_states(self, split: str) -> int:
        """Number of the simulator's stored initial states; 0 if it has none."""
        count = getattr(self.sim, "stored_states", None)
        return 0 if count is None else count(split)

    def task_of(self, seed: int) -> str:
        return self.sim.task_of(seed)

    def demonstrate(self, seeds: Sequence[int]) -> list[list[tuple[Mapping[str, Any], np.ndarray]]]:
        """Demonstrations of the simulator's expert, per decision (raw observation, chunk [H, A]).

        At the end of an episode the last action is repeated.
        """
        demonstrate = getattr(self.sim.stepwise(), "demonstrate", None)
        if demonstrate is None:
            raise NotImplementedError(f"sim {self.name!r} has no scripted expert; it cannot be imitated")
        return [self._decisions(episode) for episode in demonstrate(list(seeds))]

    def _decisions(self, episode: Sequence[tuple[Mapping[str, Any], np.ndarray]]) -> list[Any]:
        actions = np.concatenate([action.reshape(1, -1) for _, action in episode])
        last = len(actions) - 1
        return [
            (
                self._raw([episode[max(start - back, 0)][0] for back in reversed(range(self.history))]),
                actions[np.minimum(np.arange(start, start + self.chunk), last)],
            )
            for start in range(0, len(actions), self.played)
        ]

    def _raw(self, steps: list[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Stack the observations of several control steps; text is that of the last one."""
        if self.history == 1:
            return steps[0]
        return {
            name: value if isinstance(value, str) else np.stack([step[name] for step in steps])
            for name, value in steps[-1].items()
        }
