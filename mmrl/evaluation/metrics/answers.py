"""Diversity of a policy's answers to one problem, and how often each problem is solved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import log, nan
from typing import Any

from mmrl.core.groups import group_episodes
from mmrl.core.types import Episode
from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.metrics.finished_episodes import count_errors, drop_errors, get_binary_score
from mmrl.evaluation.metrics.support import get_answer
from mmrl.evaluation.report.plots import COLOURS


def entropy(answers: Sequence[object]) -> float:
    """Compute the entropy -sum_a f_a log f_a in nats; f_a is the fraction of answer a."""
    shares = [count / len(answers) for count in Counter(answers).values()]
    return -sum(share * log(share) for share in shares) + 0.0


@dataclass(frozen=True)
class AnswerEntropy(Evaluator):
    """Entropy of the final answers to a problem, `mean` over problems in nats, and their number, `distinct`.

    It can fall while the entropy of tokens rises, when the wording varies and the answer does not. All samples without
    an answer count as one answer. Source: The Invisible Leash, 2025, section 4, arXiv:2507.14843.
    """

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        groups = [
            [get_answer(episode) for episode in group] for group in group_episodes(drop_errors(episodes)).values()
        ]
        if all(answer is None for group in groups for answer in group):
            return {"mean": nan, "distinct": nan, "errors": count_errors(episodes)}
        return {
            "mean": sum(map(entropy, groups)) / len(groups),
            "distinct": sum(len(set(group)) for group in groups) / len(groups),
            "errors": count_errors(episodes),
        }


@dataclass(frozen=True)
class SolveRates(Evaluator):
    """Fractions of problems that no, some or all samples solve: `never`, `sometimes`, `always`.

    Against the start: `risen` and `fallen`, fractions of problems that are solved more often, or less often.

    Args:
        score_name: name of a score of 0 or 1 that the task gives.
    """

    score_name: str = "exact"

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        rates = list(self.rates(episodes).values())
        never, always = (_mean([rate == end for rate in rates]) for end in (0, 1))
        out = {"never": never, "sometimes": 1 - never - always, "always": always, "mean": _mean(rates)}
        return {**out, "errors": count_errors(episodes)}

    def against(self, start: Sequence[Episode], episodes: Sequence[Episode]) -> dict[str, float]:
        before, after = self.rates(start), self.rates(episodes)
        both = sorted(before.keys() & after.keys())
        return {
            "risen": _mean([after[key] > before[key] for key in both]),
            "fallen": _mean([after[key] < before[key] for key in both]),
        }

    def rates(self, episodes: Sequence[Episode]) -> dict[str, float]:
        """Return for each problem the fraction of its finished samples that solve it."""
        return {
            group[0].prompt.key: sum(get_binary_score(episode, self.score_name) for episode in group) / len(group)
            for group in group_episodes(drop_errors(episodes)).values()
        }

    def plot(self, axes: Any, start: Sequence[Episode], episodes: Sequence[Episode]) -> bool:
        bins = [i / 10 for i in range(11)]
        for colour, label, side in zip(COLOURS[1::-1], ("start", "now"), (start, episodes)):
            axes.hist(list(self.rates(side).values()), bins, histtype="step", color=colour, label=label, linewidth=1.6)
        axes.set_xlabel("share of samples that solve the problem")
        axes.set_ylabel("problems")
        axes.legend(frameon=False)
        return True


def _mean(values: Sequence[float]) -> float:
    """Mean; not a number where every episode was an error."""
    return sum(values) / len(values) if values else nan
