"""Empirical support: right answers that a policy retains, gains and loses since the start of the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any

from mmrl.core.groups import group_episodes
from mmrl.core.types import Episode
from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.metrics.finished_episodes import drop_errors, get_binary_score

KINDS = ("preserved", "lost", "gained", "never")


def count_support(before: Sequence[float], after: Sequence[float], min_fraction: float) -> dict[str, int]:
    """Count right answers by where they are found: in both, before only, after only, in neither.

    An answer is found if its fraction is at least `min_fraction`. Source: The Invisible Leash, 2025, section 2,
    arXiv:2507.14843: preserved, shrinkage, expansion and out of support.
    """
    counts = dict.fromkeys(KINDS, 0)
    for first, second in zip(before, after, strict=True):
        kind = ("never", "gained", "lost", "preserved")[2 * (first >= min_fraction) + (second >= min_fraction)]
        counts[kind] += 1
    return counts


def support_metrics(counts: Mapping[str, int]) -> dict[str, float]:
    """Ratios of the support counts (SRR, NDR, SDS, NSCR in the paper); nan where the denominator is 0.

    retained: fraction of the start's answers that are still found, P / (P + S). discovered: fraction of the answers
    found now that are new, E / (P + E). balance: their harmonic mean. net: (E - S) / (P + E + S).
    """
    p, s, e = counts["preserved"], counts["lost"], counts["gained"]
    retained, discovered = p / (p + s) if p + s else nan, e / (p + e) if p + e else nan
    both = retained + discovered
    return {
        "retained": retained,
        "discovered": discovered,
        "balance": 2 * retained * discovered / both if both > 0 else (0.0 if both == 0 else nan),
        "net": (e - s) / (p + e + s) if p + e + s else nan,
    }


def get_answer(episode: Episode) -> str | None:
    """Return the final answer of a light episode; None without one, as in a simulator."""
    answer = episode.info.get("answer")
    return None if answer is None else str(answer).strip()


@dataclass(frozen=True)
class EmpiricalSupport(Evaluator):
    """Support dynamics (The Invisible Leash): distinct right answers that the start and the policy find.

    A problem without a right answer in any sample of either counts once as never found. If episodes have no answers, to
    solve a problem is its one right answer.

    Args:
        score_name: name of a score of 0 or 1 that the task gives.
        min_fraction: fraction of a problem's samples from which on an answer counts as found; None: one sample.
    """

    score_name: str = "exact"
    min_fraction: float | None = None

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        right_answers = _right(episodes, self.score_name)
        return {
            "found": float(sum(len(answers) for answers in right_answers.values())),
            "problems": float(len(right_answers)),
        }

    def against(self, start: Sequence[Episode], episodes: Sequence[Episode]) -> dict[str, float]:
        counts = self.counts(start, episodes)
        return {**{kind: float(count) for kind, count in counts.items()}, **support_metrics(counts)}

    def counts(self, start: Sequence[Episode], episodes: Sequence[Episode]) -> dict[str, int]:
        """Count right answers by where they are found."""
        first, second = _right(start, self.score_name), _right(episodes, self.score_name)
        before, after = [], []
        for key in first.keys() & second.keys():
            for answer in sorted(first[key].keys() | second[key].keys()) or [""]:
                before.append(first[key].get(answer, 0.0))
                after.append(second[key].get(answer, 0.0))
        return count_support(before, after, 1e-9 if self.min_fraction is None else self.min_fraction)

    def plot(self, axes: Any, start: Sequence[Episode], episodes: Sequence[Episode]) -> bool:
        counts = self.counts(start, episodes)
        axes.bar(list(counts), list(counts.values()), color=("#4477aa", "#ee6677", "#228833", "#bbbbbb"))
        axes.set_ylabel("right answers")
        return True


def _right(episodes: Sequence[Episode], score: str) -> dict[str, dict[str, float]]:
    """Compute problem -> right answer -> its fraction of the problem's finished samples."""
    out: dict[str, dict[str, float]] = {}
    for group in group_episodes(drop_errors(episodes)).values():
        counts = Counter(get_answer(episode) or "" for episode in group if get_binary_score(episode, score))
        out[group[0].prompt.key] = {answer: count / len(group) for answer, count in counts.items()}
    return out
