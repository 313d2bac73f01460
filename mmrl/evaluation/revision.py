"""What a further attempt is good for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan

from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.finished import failures, finished
from mmrl.types import Episode


@dataclass(frozen=True)
class Revision(Evaluator):
    """First and last attempt compared: first, last, gain, corrected (wrong to right), spoiled, n, errors.

    All are shares of the finished episodes; gain = corrected - spoiled.
    Source: Kumar et al., 2024, arXiv:2409.12917, section 3.

    Args:
        score: of each attempt, in `info["attempts"]` as rollouts of several attempts write it; right where it is 1.
    """

    score: str = "exact"

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        valid = finished(episodes)
        pairs = [self._pair(episode) for episode in valid]
        n = len(pairs)

        def share(wanted: Sequence[tuple[bool, bool]]) -> float:
            return sum(pair in wanted for pair in pairs) / n if n else nan

        corrected, spoiled = share([(False, True)]), share([(True, False)])
        return {
            "first": share([(True, True), (True, False)]),
            "last": share([(True, True), (False, True)]),
            "gain": corrected - spoiled,
            "corrected": corrected,
            "spoiled": spoiled,
            "n": float(n),
            "errors": failures(episodes),
        }

    def _pair(self, episode: Episode) -> tuple[bool, bool]:
        attempts = episode.info.get("attempts")
        if not attempts:
            raise KeyError(
                f"the episode of {episode.prompt.key!r} has no info['attempts']; play it with rollout=self_correction"
            )
        missing = [one for one in (attempts[0], attempts[-1]) if self.score not in one]
        if missing:
            raise KeyError(
                f"no score {self.score!r} in an attempt at {episode.prompt.key!r}; it has {sorted(missing[0])}"
            )
        return attempts[0][self.score] == 1, attempts[-1][self.score] == 1
