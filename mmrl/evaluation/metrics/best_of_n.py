"""Best of n: the gold score of the answer that a proxy score ranks first among n."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, nan
from typing import Any

from mmrl.core.groups import group_episodes
from mmrl.core.types import Episode
from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.metrics.finished_episodes import count_errors, drop_errors, get_score
from mmrl.evaluation.report.plots import COLOURS
from mmrl.evaluation.statistics.intervals import student_interval


def best_of_n(proxy: Sequence[float], gold: Sequence[float], n: int) -> float:
    """Expected gold score of the answer with the highest proxy among n of N that are drawn without replacement.

    sum_i gold_(i) C(i - 1, n - 1) / C(N, n), with answers in ascending order of the proxy, i from 1; answers of equal
    proxy share their gold. Source: WebGPT, 2021, appendix I, equation 1, arXiv:2112.09332.
    """
    if not 1 <= n <= len(proxy):
        raise ValueError(f"best of n needs 1 <= n <= N, got n={n}, N={len(proxy)}")
    order = sorted(range(len(proxy)), key=lambda i: proxy[i])
    by_proxy: dict[float, list[float]] = {}
    for i in order:
        by_proxy.setdefault(proxy[i], []).append(gold[i])
    shared = [sum(by_proxy[proxy[i]]) / len(by_proxy[proxy[i]]) for i in order]
    return sum(value * comb(place, n - 1) for place, value in enumerate(shared)) / comb(len(proxy), n)


@dataclass(frozen=True)
class BestOfN(Evaluator):
    """Mean over prompts of the gold score of the best of n by a proxy: gold@N, with Student's interval over
    prompts, gold_low@N and gold_high@N.

    `proxy@N` is the proxy's own value of that answer, `oracle@N` the gold score if gold itself had chosen: a proxy that
    is over-optimised has a rising proxy and a falling gold. A prompt with fewer than n answers is left out of @n.
    Source: Scaling Laws for Reward Model Overoptimization, 2022, section 3, arXiv:2210.10760.

    Args:
        gold: name of the score that counts.
        proxy: name of the score that chooses, or "reward" for the episode's reward.
        ns: numbers of answers.
        level: confidence level of the interval.
    """

    gold: str = "gold"
    proxy: str = "reward"
    ns: Sequence[int] = (1, 2, 4, 8, 16)
    level: float = 0.95

    plots_alone = True

    def __post_init__(self) -> None:
        if not self.ns or min(self.ns) < 1:
            raise ValueError(f"best_of_n.ns must be numbers of answers, at least 1 each, got {list(self.ns)}")

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        groups = list(group_episodes(drop_errors(episodes)).values())
        rows = [([self._proxy(e) for e in group], [get_score(e, self.gold) for e in group]) for group in groups]
        metrics: dict[str, float] = {}
        for n in sorted(self.ns):
            enough = [(proxy, gold) for proxy, gold in rows if len(proxy) >= n]
            values = [best_of_n(proxy, gold, n) for proxy, gold in enough]
            if not values:
                continue
            lower, upper = student_interval(values, self.level)
            metrics |= {
                f"gold@{n}": sum(values) / len(values),
                f"gold_low@{n}": lower,
                f"gold_high@{n}": upper,
                f"proxy@{n}": sum(best_of_n(proxy, proxy, n) for proxy, _ in enough) / len(enough),
                f"oracle@{n}": sum(best_of_n(gold, gold, n) for _, gold in enough) / len(enough),
            }
        largest = max((len(proxy) for proxy, _ in rows), default=0)
        return {**(metrics or {"gold@1": nan}), "most_answers": float(largest), "errors": count_errors(episodes)}

    def plot(self, axes: Any, start: Sequence[Episode], episodes: Sequence[Episode]) -> bool:
        sides = (("now", episodes),) if start is episodes else (("start", start), ("now", episodes))
        for colour, (label, side) in zip(COLOURS[len(sides) - 1 :: -1], sides):
            metrics = self(side)
            ns = [n for n in sorted(self.ns) if f"gold@{n}" in metrics]
            axes.plot(ns, [metrics[f"gold@{n}"] for n in ns], "o-", color=colour, label=label, markersize=4)
            ends = [[metrics.get(f"gold_{end}@{n}", nan) for n in ns] for end in ("low", "high")]
            axes.fill_between(ns, *ends, color=colour, alpha=0.15, linewidth=0)
        oracle = [metrics.get(f"oracle@{n}", nan) for n in ns]
        axes.plot(ns, oracle, "--", color="0.5", label="chosen by gold", linewidth=1)
        axes.set_xscale("log", base=2)
        axes.set_xlabel("n, answers")
        axes.set_ylabel(f"{self.gold} of the best of n")
        axes.legend(frameon=False)
        return True

    def _proxy(self, episode: Episode) -> float:
        return episode.reward if self.proxy == "reward" else get_score(episode, self.proxy)
