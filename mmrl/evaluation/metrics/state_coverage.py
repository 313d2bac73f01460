"""State coverage: distinct cells of a grid that the episodes visit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.metrics.finished_episodes import count_errors, drop_errors
from mmrl.transforms.base import EpisodeTransform
from mmrl.types import Context, Episode


@dataclass(frozen=True)
class StateTrace(EpisodeTransform):
    """Write the grid cells that an episode visits into its `info`: state_trace.

    Args:
        entries: indices of the state vector that are coordinates of the grid.
        cell_size: side of a cell, in the unit of the entries.
    """

    entries: tuple[int, ...] = (0, 1)
    cell_size: float = 1.0

    def __post_init__(self) -> None:
        if self.cell_size <= 0:
            raise ValueError(f"state_trace: cell_size must be > 0, got {self.cell_size}")

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        return [replace(each, info={**each.info, "state_trace": self._cells(each)}) for each in episodes]

    def _cells(self, episode: Episode) -> list[tuple[int, ...]]:
        states = [turn.completion.observation for turn in episode.turns]
        if not states:
            return []
        if "state" not in states[0]:
            raise KeyError(f"state_trace needs observations with a state vector; these have {sorted(states[0])}")
        places = torch.stack([each["state"] for each in states])[:, list(self.entries)] / self.cell_size
        return sorted({tuple(cell) for cell in places.floor().int().tolist()})


@dataclass(frozen=True)
class StateCoverage(Evaluator):
    """Coverage of the state space: number of distinct cells that all episodes visit, `visited`, and of `episodes`.

    Source: METRA, 2023, section 5.2, arXiv:2310.08887.
    """

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        valid = drop_errors(episodes)
        if any("state_trace" not in episode.info for episode in valid):
            raise KeyError("evaluator StateCoverage: no info['state_trace']; put StateTrace into evaluation.transforms")
        cells = {cell for episode in valid for cell in episode.info["state_trace"]}
        return {"visited": float(len(cells)), "episodes": float(len(valid)), "errors": count_errors(episodes)}
