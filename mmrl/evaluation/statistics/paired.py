"""Paired comparison of two checkpoints on the same problems (McNemar's test)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mmrl.core.types import Episode
from mmrl.evaluation.metrics.by_task import group_by_task
from mmrl.evaluation.metrics.finished_episodes import count_errors, drop_errors, get_binary_score
from mmrl.evaluation.metrics.success_rate import SuccessRate
from mmrl.evaluation.report.checkpoint_metrics import EpisodesByDecode
from mmrl.evaluation.report.terminal_table import CheckpointComparison, RateEstimate
from mmrl.evaluation.statistics.intervals import mcnemar
from mmrl.evaluation.statistics.power import detectable_in_pairs


@dataclass(frozen=True)
class PairedComparison:
    """Paired comparison of two checkpoints on the same problems under one decode.

    `p_value` is McNemar's exact two-sided one over the problems that both finished; `won` were solved after only,
    `lost` before only. `detectable` is the difference of the rates that so many pairs, of which so many differ, would
    show with a probability of 80 %; None where they can show none.
    """

    comparison: CheckpointComparison
    pairs: int
    won: int
    lost: int
    p_value: float
    detectable: float | None

    def plain(self) -> dict[str, Any]:
        """Convert to plain values for JSON."""
        counts = {"pairs": self.pairs, "won": self.won, "lost": self.lost}
        return counts | {"mcnemar_p": self.p_value, "detectable": self.detectable}

    def __str__(self) -> str:
        word = "disjoint" if self.comparison.disjoint else "overlapping"
        return (
            f"{self.comparison.label}: intervals {word}; of {self.pairs} problems {self.won} solved only after, "
            f"{self.lost} only before, exact McNemar p = {self.p_value:.2g}; {self.power}"
        )

    @property
    def power(self) -> str:
        """Format the detectable difference of this number of pairs."""
        if self.detectable is None:
            return "too few differ to show any difference (80 % power)"
        return f"could show a difference of {100 * self.detectable:.1f} points (80 % power)"


def compare_pairs(
    decode: str, before: Sequence[Episode], after: Sequence[Episode], rate: SuccessRate, task: str = ""
) -> PairedComparison:
    """Compare one binary score problem by problem, one sample per problem."""
    first, second = (_by_problem(episodes, rate.score_name) for episodes in (before, after))
    common = [key for key in first if key in second]
    won = sum(second[key] and not first[key] for key in common)
    lost = sum(first[key] and not second[key] for key in common)
    sides = [
        RateEstimate(sum(side.values()), len(side), rate.level, int(count_errors(episodes)))
        for side, episodes in ((first, before), (second, after))
    ]
    p_value = mcnemar([first[key] for key in common], [second[key] for key in common])
    difference = detectable_in_pairs(len(common), (won + lost) / len(common), rate.level) if common else None
    return PairedComparison(
        CheckpointComparison(decode, sides[0], sides[1], task), len(common), won, lost, p_value, difference
    )


def compare_checkpoints(
    before: EpisodesByDecode, after: EpisodesByDecode, rates: Mapping[str, SuccessRate]
) -> dict[str, list[PairedComparison]]:
    """Compare two checkpoints per success rate and decode: on each task where there are several, then on all."""
    comparisons: dict[str, list[PairedComparison]] = {}
    for name, rate in rates.items():
        comparisons[name] = []
        for decode in (each for each in before if each in after):
            first, second = group_by_task(before[decode]), group_by_task(after[decode])
            if len(first) > 1:
                both = [task for task in first if task in second]
                comparisons[name] += [compare_pairs(decode, first[task], second[task], rate, task) for task in both]
            comparisons[name].append(compare_pairs(decode, before[decode], after[decode], rate))
    return comparisons


def _by_problem(episodes: Sequence[Episode], score: str) -> dict[str, bool]:
    right = {episode.prompt.key: get_binary_score(episode, score) == 1 for episode in drop_errors(episodes)}
    if len(right) != len(drop_errors(episodes)):
        raise ValueError("problems are compared in pairs of single samples; evaluate with num_samples=1")
    return right
