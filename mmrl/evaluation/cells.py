"""How much of a place a policy gets to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from mmrl.episodes.base import EpisodeTransform
from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.finished import failures, finished
from mmrl.types import Context, Episode


@dataclass(frozen=True)
class Trail(EpisodeTransform):
    """Writes the cells of a grid in which an episode's decisions were taken into its `info`: trail.

    Args:
        entries: those of the state vector that are coordinates of the grid.
        size: side of a cell, in the unit of the entries.
    """

    entries: tuple[int, ...] = (0, 1)
    size: float = 1.0

    def __post_init__(self) -> None:
        if self.size <= 0:
            raise ValueError(f"trail: size must be > 0, got {self.size}")

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        return [replace(each, info={**each.info, "trail": self._cells(each)}) for each in episodes]

    def _cells(self, episode: Episode) -> list[tuple[int, ...]]:
        states = [turn.completion.observation for turn in episode.turns]
        if not states:
            return []
        if "state" not in states[0]:
            raise KeyError(f"trail needs observations with a state vector; these have {sorted(states[0])}")
        places = torch.stack([each["state"] for each in states])[:, list(self.entries)] / self.size
        return sorted({tuple(cell) for cell in places.floor().int().tolist()})


@dataclass(frozen=True)
class Cells(Evaluator):
    """Distinct cells that episodes passed, all together: `visited`; and how many episodes there were, `episodes`.

    The coverage of a state space. Source: METRA, 2023, section 5.2, arXiv:2310.08887.
    """

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        valid = finished(episodes)
        if any("trail" not in episode.info for episode in valid):
            raise KeyError("evaluator cells: the episodes have no info['trail']; put Trail into evaluation.transforms")
        cells = {cell for episode in valid for cell in episode.info["trail"]}
        return {"visited": float(len(cells)), "episodes": float(len(valid)), "errors": failures(episodes)}
