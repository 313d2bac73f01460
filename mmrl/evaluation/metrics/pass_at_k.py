"""pass@k: probability that at least one of k samples is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, nan
from typing import Any

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
                    f"pass@{max(self.ks)} needs {max(self.ks)} samples per prompt, {group[0].prompt.key!r} has "
                    f"{len(group)}; raise evaluation.num_samples or lower evaluator.ks"
                )
            values = [get_binary_score(episode, self.score_name) for episode in group if episode.ended != "error"]
            counts.append((len(values), int(sum(values))))
        metrics: dict[str, float] = {}
        for k in sorted(self.ks):
            chances = [pass_at_k(n, c, k) for n, c in counts if n >= k]
            lower, upper = wilson(sum(chances), len(chances), self.level)
            mean = sum(chances) / len(chances) if chances else nan
            metrics |= {f"pass@{k}": mean, f"pass@{k}_lower": lower, f"pass@{k}_upper": upper}
            metrics["prompts"] = float(len(chances))
        return {**metrics, "errors": count_errors(episodes)}

    def against(self, start: Sequence[Episode], episodes: Sequence[Episode]) -> dict[str, float]:
        """Compute `crossing`, the smallest k from which on the start has at least this pass@k; nan if none."""
        before, after = self(start), self(episodes)
        behind = [k for k in sorted(self.ks) if after[f"pass@{k}"] > before[f"pass@{k}"]]
        later = [k for k in sorted(self.ks) if k > max(behind, default=0)]
        return {"crossing": float(later[0]) if later else nan}

    def plot(self, axes: Any, start: Sequence[Episode], episodes: Sequence[Episode]) -> bool:
        ks = sorted(self.ks)
        for colour, label, side in zip(COLOURS[1::-1], ("start", "now"), (start, episodes)):
            metrics = self(side)
            axes.plot(ks, [metrics[f"pass@{k}"] for k in ks], "o-", color=colour, label=label, markersize=4)
            ends = [[metrics[f"pass@{k}_{end}"] for k in ks] for end in ("lower", "upper")]
            axes.fill_between(ks, *ends, color=colour, alpha=0.15, linewidth=0)
        axes.set_xscale("log", base=2)
        axes.set_xlabel("k, samples")
        axes.set_ylabel("pass@k")
        axes.legend(frameon=False)
        return True
