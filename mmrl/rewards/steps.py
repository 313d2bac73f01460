"""Process rewards: scores of the steps of a completion, their clip and delta transforms, and their aggregation.

`StepScorer` is the interface of process reward models (PRM). `StepReward` aggregates the scores of the steps to one
named score of an episode; `mmrl.transforms.steps.StepRewards` writes them as rewards per token.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from mmrl.core.function_path import load_functions
from mmrl.core.types import Context, Episode
from mmrl.rewards.compose import WeightedSum
from mmrl.rewards.function import episode_columns
from mmrl.rewards.function_calls import bind_arguments, read_signature

Aggregation = Literal["min", "sum", "mean", "last"]
AGGREGATIONS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "min": min,
    "sum": sum,
    "mean": lambda scores: sum(scores) / len(scores),
    "last": lambda scores: scores[-1],
}


def split_steps(text: str, separator: str = "\n") -> list[str]:
    """Split a completion into steps, each with the separator that ends it; blank steps belong to the one before.

    The steps joined are the text, so that a step of text is a span of tokens. An empty text has one empty step.
    """
    pieces: list[list[str]] = []  # of each step
    parts = text.split(separator)
    for i, part in enumerate(parts):
        piece = part + (separator if i + 1 < len(parts) else "")
        if pieces and not part.strip():
            pieces[-1].append(piece)
        elif piece or not pieces:
            pieces.append([piece])
    return list(map("".join, pieces))


def clip_steps(scores: Sequence[float], threshold: float) -> list[float]:
    """Clip of step scores: min(p_k - threshold, 0), so that only steps below the threshold cost something.

    Source: Gao et al., "On Designing Effective RL Reward at Training Time for LLM Reasoning", arXiv 2410.15115, 4.1.
    """
    return [min(score - threshold, 0.0) for score in scores]


def delta_steps(scores: Sequence[float], keep_last: bool = True) -> list[float]:
    """Delta of step scores: p_k - p_{k+1}, and p_n for the last step, or 0 without `keep_last`.

    The rewards from step k to the end sum to p_k, so that further good steps add nothing.
    Source: Gao et al., "On Designing Effective RL Reward at Training Time for LLM Reasoning", arXiv 2410.15115, 4.2.
    """
    following = [*scores[1:], 0.0 if keep_last else scores[-1]] if scores else []
    return [score - after for score, after in zip(scores, following)]


@dataclass(frozen=True)
class StepTransform:
    """Transform of the scores of an episode's steps: clip, then delta; each only where it is set.

    Args:
        clip: threshold of the clip; None leaves the scores as they are.
        delta: take differences between successive steps.
        keep_last: the last step keeps its score under delta; false where the outcome's reward covers it.
    """

    clip: float | None = None
    delta: bool = False
    keep_last: bool = True

    def __call__(self, scores: Sequence[float]) -> list[float]:
        out = list(scores) if self.clip is None else clip_steps(scores, self.clip)
        return delta_steps(out, self.keep_last) if self.delta else out


class StepScorer(ABC):
    """Base class of step scorers: one number per step of each completion, usually in [0, 1]."""

    def bind(self, ctx: Context) -> StepScorer:
        """Return the scorer of a context's episodes: itself, unless it asks a model of the run."""
        return self

    @abstractmethod
    def __call__(self, episodes: Sequence[Episode], steps: Sequence[Sequence[str]]) -> list[list[float]]: ...

    def score_steps(self, episodes: Sequence[Episode], steps: Sequence[Sequence[str]]) -> list[list[float]]:
        """Score steps and check that each has a finite number.

        Raises:
            ValueError: naming the scorer, the problem and its steps.
        """
        scores = self(episodes, steps)
        for episode, texts, values in zip(episodes, steps, scores, strict=True):
            if len(values) != len(texts) or not all(map(math.isfinite, values)):
                raise ValueError(
                    f"step scorer {type(self).__name__} gave {values} to the {len(texts)} steps of "
                    f"{episode.prompt.key!r}; it has to give a finite number for each step"
                )
        return scores


class FunctionScorer(StepScorer):
    """Score the steps of a completion with a function: f(steps, ...) returns one number per step.

    The function takes its arguments by name, as reward functions do: steps (the texts), completion, prompt, answer, any
    column of the row, and the task's scores. It runs in this process.

    Args:
        function: path, as rewards.py:score_steps or package.module:score_steps.
    """

    foreign = True

    def __init__(self, function: str):
        self.function = function
        self._call = load_functions([function], "function")[0]
        self._signature = read_signature(self._call, function)

    def __call__(self, episodes: Sequence[Episode], steps: Sequence[Sequence[str]]) -> list[list[float]]:
        return [self._score(*each) for each in zip(episodes, steps)]

    def _score(self, episode: Episode, steps: Sequence[str]) -> list[float]:
        columns: dict[str, Any] = {**episode_columns(episode), "steps": list(steps)}
        try:
            arguments = bind_arguments(self._signature, [columns])
        except KeyError as error:
            raise ValueError(
                f"step scorer {self.function}: it has a parameter {error.args[0]!r}, and {episode.prompt.key!r} has no "
                f"such column; there are {', '.join(columns)}. Rename the parameter, or give it a default"
            ) from error
        values = self._call(**arguments)
        try:
            if isinstance(values, str | bytes | Mapping | Set):
                raise TypeError("it has no order of numbers")
            return [float(value) for value in values]
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(
                f"step scorer {self.function} returned {repr(values)[:200]} ({type(values).__name__}) for {len(steps)} "
                "steps; return a list of one number for each step"
            ) from error


@dataclass(frozen=True)
class StepReward(WeightedSum):
    """Reward of an episode: sum_k weights_k * scores_k, with the score `step_reward` of its steps among them.

    Args:
        weights: by name of the score; {exact: 0.2, step_reward: 0.8}, for example.
        scorer: of steps.
        aggregation: min (the weakest step), sum, mean or last.
        transform: of the step scores, before the aggregation.
        separator: a step ends with it.
    """

    scorer: StepScorer = field(kw_only=True)
    aggregation: Aggregation = "min"
    transform: StepTransform = field(default_factory=StepTransform)
    separator: str = "\n"

    def __post_init__(self) -> None:
        if self.aggregation not in AGGREGATIONS:
            raise ValueError(f"reward.aggregation must be one of {list(AGGREGATIONS)}, got {self.aggregation!r}")
        if not self.separator:
            raise ValueError("reward.separator is empty; name the text with which a step ends")

    def bind(self, ctx: Context) -> StepReward:
        return replace(self, scorer=self.scorer.bind(ctx))

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        steps = [split_steps(str(episode.output), self.separator) for episode in episodes]
        values = self.scorer.score_steps(episodes, steps)
        return [{"step_reward": AGGREGATIONS[self.aggregation](self.transform(each))} for each in values]
