"""MedVLThinker: RL on questions with a pass rate between two bounds, measured before training.

MedVLThinker: Simple Baselines for Multimodal Medical Reasoning, 2025, arXiv:2508.02669.

- the questions that are solved sometimes: `filter_pass_rates`
- pass rates measured before training, then the questions within: `MeasuredPassRates` and `DropMeasuring`
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mmrl.core.errors import check_fraction, check_interval
from mmrl.core.types import Context, Episode
from mmrl.curricula.measured import MeasuredChoice
from mmrl.transforms.base import EpisodeTransform


def filter_pass_rates(
    rates: Mapping[int, float], min_rate: float = 0.0, max_rate: float = 1.0, easy_first: bool = False
) -> list[int]:
    """Return the problems with min_rate < pass rate < max_rate, in their order or those of high rates first.

    Source: MedVLThinker, 2025, difficulty filter, arXiv:2508.02669: 0 < passes < 16 of 16 samples.
    """
    within = [index for index, rate in rates.items() if min_rate < rate < max_rate]
    return sorted(within, key=lambda index: -rates[index]) if easy_first else within


class MeasuredPassRates(MeasuredChoice):
    """Selects problems to measure their pass rates, and then repeats those whose rate lies between two bounds.

    Put `DropMeasuring` into data.transforms, so that nothing is learned while the start is measured, and measure with
    as many completions as the bounds need: 16 in the paper (`group_size` as a schedule). A problem is measured once
    where data.num_prompts * measure_iterations is not above the size of the task. Source: MedVLThinker, 2025,
    arXiv:2508.02669.

    Args:
        measure_iterations: at the beginning.
        min_rate: problems with this rate or a lower one are left out.
        max_rate: problems with this rate or a higher one are left out.
        easy_first: go from high rates to low ones, in place of the order of the task.
        score_name: "reward", or the name of a score, in [0, 1].
    """

    def __init__(
        self,
        measure_iterations: int,
        min_rate: float = 0.0,
        max_rate: float = 1.0,
        easy_first: bool = False,
        score_name: str = "reward",
    ):
        super().__init__(measure_iterations, score_name)
        check_fraction("curriculum", max_rate=max_rate)
        check_interval("curriculum", f"[0, {max_rate})", min_rate=min_rate)
        self.min_rate, self.max_rate, self.easy_first = min_rate, max_rate, easy_first

    def choose(self, scores: Mapping[int, float], ctx: Context) -> list[int]:
        problems = filter_pass_rates(scores, self.min_rate, self.max_rate, self.easy_first)
        if not problems:
            raise ValueError(
                f"curriculum: none of {len(scores)} measured problems has a pass rate between {self.min_rate} and "
                f"{self.max_rate}; measure more, with more completions, or begin with another start"
            )
        return problems


@dataclass(frozen=True)
class DropMeasuring(EpisodeTransform):
    """Drops the episodes of the first iterations, which only measure pass rates.

    Set data.max_empty_iterations above their number.

    Args:
        iterations: those of `MeasuredPassRates`.
    """

    iterations: int

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        return [] if ctx.iteration < self.iterations else episodes
