"""LimitOfRLVR: pass@k curves of a policy and its start on the same problems, and the k at which they meet.

Does Reinforcement Learning Really Incentivize Reasoning Capacity in LLMs Beyond the Base Model?, 2025,
arXiv:2504.13837.

- pass@k of a problem for every k: `pass_curve`
- the k from which on the start is at least as good: `find_crossing`
- problems by who solves them, and by how often: `count_solved`, `accuracy_histogram`
- how far one sample of the trained policy is from many of the start: `BoundaryComparison.efficiency_gap`
- perplexity of right answers: `mmrl.evaluation.boundary.perplexity`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import floor, nan
from statistics import mean
from typing import Any

from mmrl.core.groups import group_episodes
from mmrl.core.types import Episode
from mmrl.evaluation.boundary.perplexity import summarize_perplexity
from mmrl.evaluation.metrics.by_task import group_by_task
from mmrl.evaluation.metrics.finished_episodes import get_binary_score
from mmrl.evaluation.metrics.success_rate import SuccessRate
from mmrl.evaluation.report.checkpoint_metrics import EpisodesByDecode
from mmrl.evaluation.statistics.intervals import student_interval

BINS = ("0", "to 0.2", "to 0.4", "to 0.6", "to 0.8", "below 1", "1")
"""Bins of a problem's accuracy: none of its samples is right, fifths of the open interval, and all of them are."""


def pass_curve(samples: int, right: int, largest: int) -> list[float]:
    """pass@k of one problem for k = 1 ... largest, without bias: 1 - prod_{i < k} (n - c - i) / (n - i).

    The product is C(n - c, k) / C(n, k), and 0 from k = n - c + 1 on. Source: Chen et al., "Evaluating Large Language
    Models Trained on Code", arXiv:2107.03374, equation 1 and figure 3.

    Args:
        samples: n, finished samples of the problem.
        right: c of them.
        largest: last k.
    """
    if not 0 <= right <= samples or not 1 <= largest <= samples:
        raise ValueError(f"pass@k needs 0 <= c <= n and 1 <= k <= n, got n={samples}, c={right}, k={largest}")
    missed, curve = 1.0, []
    for i in range(largest):
        missed *= max(samples - right - i, 0) / (samples - i)
        curve.append(1 - missed)
    return curve


def find_crossing(before: Sequence[float], after: Sequence[float]) -> float:
    """Smallest k from which on `before` is at least as high as `after`; nan if it is lower at the last k.

    Entry k - 1 of a curve is pass@k. It is 1 where `after` is nowhere higher. Values closer than 1e-9 are equal.
    """
    ahead = [k for k, (first, second) in enumerate(zip(before, after, strict=True), start=1) if second > first + 1e-9]
    crossing = max(ahead, default=0) + 1
    return float(crossing) if crossing <= len(before) else nan


def count_solved(before: Sequence[float], after: Sequence[float]) -> dict[str, int]:
    """Count problems by whether any sample is right, from their accuracies: both, lost, gained, neither."""
    names = {(True, True): "both", (True, False): "lost", (False, True): "gained", (False, False): "neither"}
    counts = dict.fromkeys(names.values(), 0)
    for first, second in zip(before, after, strict=True):
        counts[names[first > 0, second > 0]] += 1
    return counts


def accuracy_histogram(accuracies: Sequence[float]) -> list[int]:
    """Count problems by the share of their samples that is right, in the bins of `BINS`."""
    counts = [0] * len(BINS)
    for accuracy in accuracies:
        # (0, 0.2] is bin 1, ..., (0.8, 1) is bin 5
        inner = 1 + min(floor(5 * accuracy - 1e-9), 4)
        counts[0 if accuracy == 0 else len(BINS) - 1 if accuracy == 1 else inner] += 1
    return counts


@dataclass(frozen=True)
class BoundaryComparison:
    """Reasoning boundary of two policies under one decode, on the same problems.

    Args:
        label: decode, and the task where there are several.
        before: mean pass@k over problems of the first policy; entry k - 1 is pass@k.
        after: of the second policy.
        accuracies: share of right samples of every problem, of both policies.
        differences: pass@K of every problem after minus before, at the largest k.
        left_out: problems with fewer finished samples than the largest k on either side.
        level: confidence level of the interval.
        perplexity: as of `summarize_perplexity`; empty where it was not measured.
    """

    label: str
    before: Sequence[float]
    after: Sequence[float]
    accuracies: tuple[Sequence[float], Sequence[float]]
    differences: Sequence[float]
    left_out: int = 0
    level: float = 0.95
    perplexity: Mapping[str, float] = field(default_factory=dict)

    @property
    def largest(self) -> int:
        """K, the largest k."""
        return len(self.before)

    @property
    def ks(self) -> list[int]:
        """Powers of two up to K, and K."""
        powers = [2**i for i in range(self.largest.bit_length()) if 2**i < self.largest]
        return [*powers, self.largest]

    @property
    def crossing(self) -> float:
        """Smallest k from which on the first policy solves at least as much; nan if there is none up to K."""
        return find_crossing(self.before, self.after) if self.differences else nan

    @property
    def efficiency_gap(self) -> float:
        """pass@K of the first policy minus pass@1 of the second: what sampling still finds that training did not.

        Source: arXiv:2504.13837, section 4.3, sampling efficiency gap, with K = 256.
        """
        return self.before[-1] - self.after[0]

    @property
    def difference(self) -> tuple[float, float, float]:
        """Mean difference of pass@K, and Student's interval over the problems."""
        if not self.differences:
            return nan, nan, nan
        return mean(self.differences), *student_interval(self.differences, self.level)

    @property
    def solved(self) -> dict[str, int]:
        """Problems by who solves them with all samples."""
        return count_solved(*self.accuracies)

    def numbers(self) -> dict[str, float]:
        """The comparison in single numbers."""
        difference, lower, upper = self.difference
        return {
            "crossing": self.crossing,
            "efficiency_gap": self.efficiency_gap,
            "difference": difference,
            "difference_lower": lower,
            "difference_upper": upper,
            **{name: float(count) for name, count in self.solved.items()},
            "left_out": float(self.left_out),
            **self.perplexity,
        }

    def plain(self) -> dict[str, Any]:
        """Convert to plain values for JSON; numbers that are not defined are null."""
        curves = {"before": list(self.before), "after": list(self.after)}
        numbers = {name: None if value != value else value for name, value in self.numbers().items()}
        histograms = {name: accuracy_histogram(each) for name, each in zip(curves, self.accuracies)}
        return {"label": self.label, "pass": curves, **numbers, "accuracy_bins": list(BINS), "accuracies": histograms}


def compare_boundary(
    label: str, before: Sequence[Episode], after: Sequence[Episode], score_name: str = "exact", level: float = 0.95
) -> BoundaryComparison:
    """Compare two policies by several samples of the same problems.

    K is the smallest number of samples that any problem was given. Samples that ended in an error do not count; a
    problem with fewer than K others on either side is left out of all numbers.

    Raises:
        ValueError: the two have no problem in common.
    """
    first, second = (_count_right(episodes, score_name) for episodes in (before, after))
    common = [key for key in first if key in second]
    if not common:
        raise ValueError("the two measurements have no problem in common; measure both on the same problems")
    largest = min(given for side in (first, second) for given, _, _ in side.values())
    pairs = [(first[key], second[key]) for key in common]
    complete = [pair for pair in pairs if min(finished for _, finished, _ in pair) >= largest]
    # [problems][K] of both sides
    curves = [[pass_curve(pair[side][1], pair[side][2], largest) for pair in complete] for side in (0, 1)]
    means = [[mean(values) for values in zip(*rows)] if rows else [nan] * largest for rows in curves]
    return BoundaryComparison(
        label,
        before=means[0],
        after=means[1],
        accuracies=([a[2] / a[1] for a, _ in complete], [b[2] / b[1] for _, b in complete]),
        differences=[b[-1] - a[-1] for a, b in zip(*curves)],
        left_out=len(pairs) - len(complete),
        level=level,
        perplexity=summarize_perplexity(before, after, score_name),
    )


def compare_boundaries(
    before: EpisodesByDecode, after: EpisodesByDecode, rates: Mapping[str, SuccessRate]
) -> dict[str, list[BoundaryComparison]]:
    """Compare two checkpoints per success rate and decode: on each task where there are several, then on all."""
    comparisons: dict[str, list[BoundaryComparison]] = {}
    for name, rate in rates.items():
        comparisons[name] = []
        for decode in (each for each in before if each in after):
            first, second = group_by_task(before[decode]), group_by_task(after[decode])
            parts = {f"{decode}, {task}": (first[task], second[task]) for task in first if task in second}
            whole = {decode: (before[decode], after[decode])}
            for label, sides in ({**parts, **whole} if len(first) > 1 else whole).items():
                comparisons[name].append(compare_boundary(label, *sides, rate.score_name, rate.level))
    return comparisons


def _count_right(episodes: Sequence[Episode], score_name: str) -> dict[str, tuple[int, int, int]]:
    """Samples, finished ones and right ones of every problem, by its key."""
    counts = {}
    for group in group_episodes(episodes).values():
        scores = [get_binary_score(episode, score_name) for episode in group if episode.ended != "error"]
        counts[group[0].prompt.key] = (len(group), len(scores), int(sum(scores)))
    return counts
