"""Agent-RLVR: pairs of an attempt that passes the tests and one that does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmrl.core.groups import get_score, group_episodes
from mmrl.core.types import Context, Episode
from mmrl.transforms.base import EpisodeTransform
from mmrl.transforms.best_worst import label_preference


def select_pair(passed: Sequence[bool]) -> tuple[int, int] | None:
    """Return the places of the first attempt that passed and of the first that failed; None without one of each."""
    right, wrong = [i for i, each in enumerate(passed) if each], [i for i, each in enumerate(passed) if not each]
    return (right[0], wrong[0]) if right and wrong else None


@dataclass(frozen=True)
class TestedPairs(EpisodeTransform):
    """Keeps of each problem the pair of `select_pair`, labelled for `DPOLoss`. Source: Agent-RLVR, 2025.

    Args:
        score_name: "reward", or the name of a score; an attempt passed where it is above 0.
    """

    __test__ = False  # no test case of pytest

    score_name: str = "exact"

    min_group_size = 2

    def writes(self) -> frozenset[str]:
        return frozenset({"preference"})

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        out = []
        for group in group_episodes(episodes).values():
            pair = select_pair([get_score(episode, self.score_name) > 0 for episode in group])
            out += [] if pair is None else [label_preference(group[i], sign) for i, sign in zip(pair, (1, -1))]
        spare = next((episode for episode in episodes if episode.turns), None)
        return out or ([] if spare is None else [label_preference(spare, 0)])  # 0: not trained on
