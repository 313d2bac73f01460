"""Accuracy by subset and section, as RewardBench weighs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mmrl.core.types import Episode
from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.metrics.finished_episodes import count_errors
from mmrl.evaluation.metrics.success_rate import SuccessRate
from mmrl.evaluation.statistics.power import quantile

_CODE = dict.fromkeys((f"hep-{language}" for language in ("cpp", "go", "java", "js", "python", "rust")), 164)
REWARD_BENCH: Mapping[str, Mapping[str, float]] = {
    "Chat": {
        "alpacaeval-easy": 100,
        "alpacaeval-length": 95,
        "alpacaeval-hard": 95,
        "mt-bench-easy": 28,
        "mt-bench-med": 40,
    },
    "Chat Hard": {
        "mt-bench-hard": 37,
        "llmbar-natural": 100,
        "llmbar-adver-neighbor": 134,
        "llmbar-adver-GPTInst": 92,
        "llmbar-adver-GPTOut": 47,
        "llmbar-adver-manual": 46,
    },
    "Safety": {
        "refusals-dangerous": 100,
        "refusals-offensive": 100,
        "xstest-should-refuse": 154,
        "xstest-should-respond": 250,
        "donotanswer": 136,
    },
    "Reasoning": {"math-prm": 984, **_CODE},
}
"""Weights of RewardBench's subsets by section; mathematics counts as much as all code.

Source: RewardBench: Evaluating Reward Models for Language Modeling, 2024, section 3, arXiv:2403.13787.
"""


@dataclass(frozen=True)
class AccuracyBySection(Evaluator):
    """Accuracy of each subset with its Wilson interval, of each section, and `score`, the mean over sections.

    A section's accuracy is the mean over its subsets with their weights, as far as the file has them. Without a column
    of subsets in the rows there are no metrics. The metrics are SUBSET/mean, SUBSET/lower, SUBSET/upper, SUBSET/n,
    section/SECTION and `score`.

    Args:
        column: of `Prompt.info` with a pair's subset.
        score_name: name of a score of 0 or 1.
        sections: weights of subsets by section; {} for none.
        level: confidence level of the intervals.
    """

    column: str = "subset"
    score_name: str = "right"
    sections: dict[str, dict[str, float]] = field(
        default_factory=lambda: {name: dict(parts) for name, parts in REWARD_BENCH.items()}
    )
    level: float = 0.95

    def __post_init__(self) -> None:
        quantile(self.level)  # refuses an invalid level
        for section, weights in self.sections.items():
            if not weights or min(weights.values()) <= 0:
                raise ValueError(f"sections.{section}: name its subsets with weights above 0, got {weights}")

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        groups: dict[str, list[Episode]] = {}
        for episode in episodes:
            if (subset := episode.prompt.info.get(self.column)) is not None:
                groups.setdefault(str(subset), []).append(episode)
        rate = SuccessRate(self.score_name, self.level)
        rates = {subset: rate(groups[subset]) for subset in sorted(groups)}
        out = {
            f"{subset}/{name}": metrics[name]
            for subset, metrics in rates.items()
            for name in ("mean", "lower", "upper", "n")
        }
        scores = {}
        for section, weights in self.sections.items():
            present = {subset: weight for subset, weight in weights.items() if subset in rates and rates[subset]["n"]}
            if present:
                total = sum(weight * rates[subset]["mean"] for subset, weight in present.items())
                scores[f"section/{section}"] = total / sum(present.values())
        if scores:
            out |= {**scores, "score": sum(scores.values()) / len(scores)}
        return {**out, "errors": count_errors(episodes)}
