"""pass@k and pass^k: probability that at least one of k samples is right, and that all are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb, nan
from typing import Any, ClassVar

from mmrl.core.groups import group_episodes
from mmrl.core.types import Episode
from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.metrics.finished_episodes import count_errors, get_binary_score
from mmrl.evaluation.report.plots import COLOURS
from mmrl.evaluation.statistics.intervals import wilson
from mmrl.evaluation.statistics.power import quantile


def pass_at_k(n: int, c: int, k: int) -> float:
    """Estimate without bias the probability that k samples drawn from n, of which c are right, include a right one.

    1 - C(n - c, k) / C(n, k)

    Source: Chen et al., "Evaluating Large Language Models Trained on Code", arXiv:2107.03374, equation 1.
    """
    if not 0 <= c <= n or not 1 <= k <= n:
        raise ValueError(f"pass@k needs 0 <= c <= n and 1 <= k <= n, got n={n}, c={c}, k={k}")
    return 1 - comb(n - c, k) / comb(n, k)


def pass_hat_k(n: int, c: int, k: int) -> float:
    """Estimate without bias the probability that k samples drawn from n, of which c are right, are all right.

    C(c, k) / C(n, k)

    Source: Yao et al., "tau-bench: A Benchmark for Tool-Agent-User Interaction in Real-World Domains",
    arXiv:2406.12045, section 3.
    """
    if not 0 <= c <= n or not 1 <= k <= n:
        raise ValueError(f"pass^k needs 0 <= c <= n and 1 <= k <= n, got n={n}, c={c}, k={k}")
    return comb(c, k) / comb(n, k)


@dataclass(frozen=True)
class PassAtK(Evaluator):
    """Mean pass@k over prompts for each k, with a Wilson interval over prompts: pass@K, pass@K_lower, pass@K_upper.

    `prompts` is the number of prompts at the largest k, `errors` the number of samples left out. A prompt with fewer
    than k samples without errors is left out of pass@k; a prompt that was sampled fewer than k times is refused.

    Args:
        ks: numbers of samples.
        score_name: name of a score of 0 or 1 that the task gives.
        level: confidence level of the interval.
    """

    ks: Sequence[int] = (1,)
    score_name: str = "exact"
    level: float = 0.95

    symbol: ClassVar[str] = "pass@"
    estimate: ClassVar[Callable[[int, int, int], float]] = staticmethod(pass_at_k)

    def __post_init__(self) -> None:
        quantile(self.level)  # refuses an invalid level
        if not self.ks or min(self.ks) < 1:
            raise ValueError(f"evaluator.ks must be numbers of samples, at least 1 each, got {self.ks}")

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        if not episodes:
            raise ValueError("no episodes to evaluate")
        counts = []  # (finished samples, right ones) of every prompt
        for group in group_episodes(episodes).values():
            if len(group) < max(self.ks):
                raise ValueError(
                    f"{self.symbol}{max(self.ks)} needs {max(self.ks)} samples per prompt, {group[0].prompt.key!r} has "
                    f"{len(group)}; raise evaluation.num_samples or lower evaluator.ks"
                )
            values = [get_binary_score(episode, self.score_name) for episode in group if episode.ended != "error"]
            counts.append((len(values), int(sum(values))))
        metrics: dict[str, float] = {}
        for k in sorted(self.ks):
            chances = [self.estimate(n, c, k) for n, c in counts if n >= k]
            lower, upper = wilson(sum(chances), len(chances), self.level)
            mean = sum(chances) / len(chances) if chances else nan
            name = f"{self.symbol}{k}"
            metrics |= {name: mean, f"{name}_lower": lower, f"{name}_upper": upper}
            metrics["prompts"] = float(len(chances))
        return {**metrics, "errors": count_errors(episodes)}

    def against(self, start: Sequence[Episode], episodes: Sequence[Episode]) -> dict[str, float]:
        """Compute `crossing`, the smallest k from which on the start is at least as good; nan if none."""
        before, after = self(start), self(episodes)
        behind = [k for k in sorted(self.ks) if after[f"{self.symbol}{k}"] > before[f"{self.symbol}{k}"]]
        later = [k for k in sorted(self.ks) if k > max(behind, default=0)]
        return {"crossing": float(later[0]) if later else nan}

    def plot(self, axes: Any, start: Sequence[Episode], episodes: Sequence[Episode]) -> bool:
        ks = sorted(self.ks)
        for colour, label, side in zip(COLOURS[1::-1], ("start", "now"), (start, episodes)):
            metrics = self(side)
            axes.plot(ks, [metrics[f"{self.symbol}{k}"] for k in ks], "o-", color=colour, label=label, markersize=4)
            ends = [[metrics[f"{self.symbol}{k}_{end}"] for k in ks] for end in ("lower", "upper")]
            axes.fill_between(ks, *ends, color=colour, alpha=0.15, linewidth=0)
        axes.set_xscale("log", base=2)
        axes.set_xlabel("k, samples")
        axes.set_ylabel(f"{self.symbol}k")
        axes.legend(frameon=False)
        return True


@dataclass(frozen=True)
class Reliability(PassAtK):
    """Mean pass^k over prompts for each k, that all of k samples are right, in the form of `PassAtK`: pass^K and so on.

    At k = 1 it is pass@1, and it falls with k where pass@k rises.

    Args:
        ks: numbers of samples.
        score_name: name of a score of 0 or 1 that the task gives.
        level: confidence level of the interval.
    """

    symbol = "pass^"
    estimate = staticmethod(pass_hat_k)
