"""Gain of self-correction over the first attempt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan

from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.metrics.finished_episodes import count_errors, drop_errors
from mmrl.types import Episode


@dataclass(frozen=True)
class CorrectionGain(Evaluator):
    """Accuracy of the first and the last attempt (SCoRe).

    first, last, gain, corrected (wrong to right), spoiled: shares of the finished episodes; gain = corrected - spoiled.
    Source: Kumar et al., 2024, arXiv:2409.12917, section 3.

    Args:
        score_name: score of each attempt in `info["attempts"]`, 1 where the attempt is right.
    """

    score_name: str = "exact"

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        valid = drop_errors(episodes)
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
            "errors": count_errors(episodes),
        }

    def _pair(self, episode: Episode) -> tuple[bool, bool]:
        attempts = episode.info.get("attempts")
        if not attempts:
            raise KeyError(
                f"the episode of {episode.prompt.key!r} has no info['attempts']; play it with rollout=self_correction"
            )
        missing = [one for one in (attempts[0], attempts[-1]) if self.score_name not in one]
        if missing:
            raise KeyError(
                f"no score {self.score_name!r} in an attempt at {episode.prompt.key!r}; it has {sorted(missing[0])}"
            )
        return attempts[0][self.score_name] == 1, attempts[-1][self.score_name] == 1
