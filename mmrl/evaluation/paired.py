"""Two policies compared problem by problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mmrl.evaluation.accuracy import Rate
from mmrl.evaluation.by_task import by_task
from mmrl.evaluation.finished import binary_score, failures, finished
from mmrl.evaluation.intervals import mcnemar
from mmrl.evaluation.measured import Decodes
from mmrl.evaluation.power import detectable_in_pairs
from mmrl.evaluation.report import Comparison, Measured
from mmrl.types import Episode


@dataclass(frozen=True)
class Paired:
    """Two checkpoints on the same problems under one decode.

    `p_value` is McNemar's exact two-sided one over the problems that both finished; `won` were solved after only,
    `lost` before only. `detectable` is the difference of the rates that so many pairs, of which so many differ, would
    show with a probability of 80 %; None where they can show none.
    """

    comparison: Comparison
    pairs: int
    won: int
    lost: int
    p_value: float
    detectable: float | None

    def plain(self) -> dict[str, Any]:
        """For JSON."""
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
        """What the pairs could have shown, in words."""
        if self.detectable is None:
            return "too few differ to show any difference (80 % power)"
        return f"could show a difference of {100 * self.detectable:.1f} points (80 % power)"


def paired(decode: str, before: Sequence[Episode], after: Sequence[Episode], rate: Rate, task: str = "") -> Paired:
    """Compare one score of 0 or 1, one sample per problem."""
    first, second = (_by_problem(episodes, rate.score) for episodes in (before, after))
    common = [key for key in first if key in second]
    won = sum(second[key] and not first[key] for key in common)
    lost = sum(first[key] and not second[key] for key in common)
    sides = [
        Measured(sum(side.values()), len(side), rate.level, int(failures(episodes)))
        for side, episodes in ((first, before), (second, after))
    ]
    p_value = mcnemar([first[key] for key in common], [second[key] for key in common])
    seen = detectable_in_pairs(len(common), (won + lost) / len(common), rate.level) if common else None
    return Paired(Comparison(decode, sides[0], sides[1], task), len(common), won, lost, p_value, seen)


def pairs(before: Decodes, after: Decodes, rates: Mapping[str, Rate]) -> dict[str, list[Paired]]:
    """Per rate one comparison per decode that both have: of each task where there are several, then of all."""
    made: dict[str, list[Paired]] = {}
    for name, rate in rates.items():
        made[name] = []
        for decode in (each for each in before if each in after):
            first, second = by_task(before[decode]), by_task(after[decode])
            if len(first) > 1:
                both = [task for task in first if task in second]
                made[name] += [paired(decode, first[task], second[task], rate, task) for task in both]
            made[name].append(paired(decode, before[decode], after[decode], rate))
    return made


def _by_problem(episodes: Sequence[Episode], score: str) -> dict[str, bool]:
    right = {episode.prompt.key: binary_score(episode, score) == 1 for episode in finished(episodes)}
    if len(right) != len(finished(episodes)):
        raise ValueError("problems are compared in pairs of single samples; measure with num_samples=1")
    return right
