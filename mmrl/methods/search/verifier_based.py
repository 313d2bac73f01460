"""Whether verification or RL should beat the cloning of good traces: how much the traces of a policy differ.

Scaling Test-Time Compute Without Verification or RL is Suboptimal, 2025, arXiv:2502.12118.

- heterogeneity and anti-concentration of what traces earn, which the gap between the two is bounded by: `ReturnSpread`
- a trace earns 1 from its first right state on, else 0: `tasks.planted`
- what the verifier's choice among n traces earns: `VerifiedReturn`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan, sqrt
from statistics import fmean

from mmrl.core.errors import check_positive
from mmrl.core.groups import group_episodes
from mmrl.core.types import Episode
from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.metrics.best_of_n import best_of_n
from mmrl.evaluation.metrics.finished_episodes import count_errors, drop_errors, get_score


def measure_spread(returns: Sequence[float], epsilon: float) -> tuple[float, float]:
    """Variance of the returns of a problem, and the share of them that is `sqrt(epsilon)` deviations above their mean.

    Source: arXiv:2502.12118, section 4: heterogeneity sigma^2 and anti-concentration c = Pr[r >= mean + sigma
    sqrt(epsilon)]. Equal returns have a variance of 0 and a share of 1, and no choice among them gains anything.

    Raises:
        ValueError: there is no return.
    """
    if not returns:
        raise ValueError("the spread of no returns is not defined")
    mean = fmean(returns)
    variance = fmean((value - mean) ** 2 for value in returns)
    threshold = mean + sqrt(variance * epsilon)
    return variance, fmean(value >= threshold or variance == 0 for value in returns)


@dataclass(frozen=True)
class ReturnSpread(Evaluator):
    """Spread of what the samples of each problem earn: `mean`, `heterogeneity`, `anti_concentration`, `n`, `errors`.

    The mean return over all problems; sigma, the root of the mean variance over the samples of a problem; the mean
    share of samples that are sqrt(epsilon) deviations of their problem above its mean. Source: arXiv:2502.12118,
    section 4.

    Args:
        score_name: name of the score that a sample earns.
        epsilon: square of the number of deviations.
    """

    score_name: str = "earned"
    epsilon: float = 1.0

    def __post_init__(self) -> None:
        check_positive("return_spread", epsilon=self.epsilon)

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        groups = group_episodes(drop_errors(episodes)).values()
        returns = [[get_score(episode, self.score_name) for episode in group] for group in groups]
        spreads = [measure_spread(row, self.epsilon) for row in returns]
        return {
            "mean": fmean(map(fmean, returns)) if returns else nan,
            "heterogeneity": sqrt(fmean(variance for variance, _ in spreads)) if spreads else nan,
            "anti_concentration": fmean(share for _, share in spreads) if spreads else nan,
            "n": float(len(returns)),
            "errors": count_errors(episodes),
        }


@dataclass(frozen=True)
class VerifiedReturn(Evaluator):
    """What the sample that a verifier scores highest earns, as a mean over the problems: `mean`, `n`, `errors`.

    Samples that it scores equally share what they earn. Source: arXiv:2502.12118, section 5, best of n.

    Args:
        score_name: name of the score that a sample earns.
        verifier: name of the verifier's score.
    """

    score_name: str = "earned"
    verifier: str = "reward_model"

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        groups = group_episodes(drop_errors(episodes)).values()
        chosen = [self._choose(group) for group in groups]
        return {"mean": fmean(chosen) if chosen else nan, "n": float(len(chosen)), "errors": count_errors(episodes)}

    def _choose(self, group: Sequence[Episode]) -> float:
        """What the best one of a problem's samples by the verifier earns."""
        proxy, gold = ([get_score(e, name) for e in group] for name in (self.verifier, self.score_name))
        return best_of_n(proxy, gold, len(group))
