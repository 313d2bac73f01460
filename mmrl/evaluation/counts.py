"""What happened on the way, by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.finished import failures
from mmrl.types import Episode


@dataclass(frozen=True)
class Counts(Evaluator):
    """How often, per episode, each thing came that a rollout counted in `info["counts"]`: outcomes of tools and trees.

    Failed episodes count too, since why they failed is in it; `errors` is their number.
    """

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        counts = [episode.info.get("counts", {}) for episode in episodes]
        names = sorted({name for one in counts for name in one})
        means = {name: sum(one.get(name, 0) for one in counts) / len(counts) for name in names}
        return {**means, "errors": failures(episodes)}
