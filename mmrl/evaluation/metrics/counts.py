"""Mean number of events per episode, such as outcomes of tool calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmrl.core.types import Episode
from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.metrics.finished_episodes import count_errors


@dataclass(frozen=True)
class EventCounts(Evaluator):
    """Mean number per episode of every event that a rollout counts in `info["counts"]`: outcomes of tools and trees.

    Episodes with errors are included, since their events tell the reason; `errors` is their number.
    """

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        counts = [episode.info.get("counts", {}) for episode in episodes]
        names = sorted({name for one in counts for name in one})
        means = {name: sum(one.get(name, 0) for one in counts) / len(counts) for name in names}
        return {**means, "errors": count_errors(episodes)}
