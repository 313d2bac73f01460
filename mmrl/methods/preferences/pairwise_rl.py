"""Pairwise-RL: reward the probability of beating an anchor answer, with a value function that sees the anchor too.

A Unified Pairwise Framework for RLHF: Bridging Generative Reward Modeling and Policy Optimization, 2025,
arXiv:2504.04950.

- a language model reads two answers and gives the probability of the label of the better one: `LabelGrader`
- p(y > y_ref) = [P(A | y, y_ref) + 1 - P(A | y_ref, y)] / 2 over both orders: `win_probability`, `AnchoredPreference`
- the value of an answer is that of the prompt with the anchor: `AnchorContext`, `ContextValues`, `ContextValue`

More than 150 lines, since the anchor takes part in three places: the judge's question, the context of the value
function, and its loss.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from mmrl.annotators.logprobs import ForwardAnnotator, score_rows
from mmrl.core.batch import Batch
from mmrl.core.errors import check_interval
from mmrl.core.types import Context, Episode, PolicyOutput, Turn
from mmrl.objectives.value import SquaredValue
from mmrl.rewards.judges.base import JudgeForm, NoAnswer
from mmrl.rewards.judges.graded import AnswerGrader
from mmrl.rewards.judges.labels import LabelGrader
from mmrl.rewards.judges.questions import Question, answer_of, reference_of
from mmrl.transforms.base import EpisodeTransform


def win_probability(first: float, second: float) -> float:
    """p(y > y_ref) = [P(A | y, y_ref) + 1 - P(A | y_ref, y)] / 2.

    Source: Pairwise-RL, 2025, arXiv:2504.04950.

    Args:
        first: probability of the first label where the answer stands before the anchor.
        second: the same where the anchor stands before the answer.
    """
    return 0.5 + (first - second) / 2  # exactly 0.5 where the order changes nothing


@dataclass(frozen=True)
class AnchoredPreference(JudgeForm):
    """Score `judge` of an answer: the probability that a pairwise judge prefers it to the anchor, over both orders.

    The anchor is the right answer that the task states. A judge that only looks at the place gives 0.5. An answer with
    no verdict in one of the orders has no score. `rollout/judge_inconsistent` counts answers of which both orders
    prefer the same place. Source: Pairwise-RL, 2025, arXiv:2504.04950.

    Args:
        grader: asks which of two answers is better; its grades are probabilities.
        log_odds: give log(p / (1 - p)) in place of p.
        least: p is kept in [least, 1 - least] before log-odds are taken.
        name: of the score.
    """

    reads_options = True

    grader: AnswerGrader = field(default_factory=LabelGrader)
    log_odds: bool = False
    least: float = 1e-4
    name: str = "judge"

    def __post_init__(self) -> None:
        check_interval("reward.form", "(0, 0.5)", least=self.least)

    def ask(self, group: Sequence[Episode]) -> list[Question]:
        pairs = [[answer_of(episode), reference_of(episode)] for episode in group]
        return [self.grader.ask(e, order) for e, pair in zip(group, pairs) for order in (pair, pair[::-1])]

    def combine(self, group: Sequence[Episode], verdicts: Sequence[Any]) -> list[dict[str, float] | NoAnswer]:
        return [self._score(*orders) for orders in zip(verdicts[::2], verdicts[1::2], strict=True)]

    def _score(self, first: Any, second: Any) -> dict[str, float] | NoAnswer:
        for verdict in (first, second):
            if isinstance(verdict, NoAnswer):
                return verdict
        p = win_probability(first[0], second[0])
        if self.log_odds:
            p = min(max(p, self.least), 1 - self.least)
            p = math.log(p) - math.log1p(-p)
        return {self.name: p}

    def count(self, verdicts: Sequence[Any]) -> dict[str, int]:
        pairs = [pair for pair in zip(verdicts[::2], verdicts[1::2]) if not any(isinstance(v, NoAnswer) for v in pair)]
        return {"inconsistent": sum((first[0] - 0.5) * (second[0] - 0.5) > 0 for first, second in pairs)}


@dataclass(frozen=True)
class AnchorContext(EpisodeTransform):
    """Give each answer a second context: the prompt, whose last message ends with the anchor.

    Args:
        template: what follows the text of the last message; {anchor} stands for the anchor.
        name: of the context.
    """

    template: str = "\n\nAn answer to compare with:\n{anchor}"
    name: str = "anchor"

    def contexts(self) -> frozenset[str]:
        return frozenset({self.name})

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        return [replace(each, turns=[self._add(each, turn, ctx) for turn in each.turns]) for each in episodes]

    def _add(self, episode: Episode, turn: Turn, ctx: Context) -> Turn:
        if len(episode.turns) > 1:
            raise ValueError(
                f"anchor_context: answers of one row are compared with an anchor, and the episode of "
                f"{episode.prompt.key!r} has {len(episode.turns)}"
            )
        raw = episode.prompt.observation
        *earlier, last = raw["messages"]
        added = self.template.format(anchor=reference_of(episode))
        content = last["content"]
        content = content + added if isinstance(content, str) else [*content, {"type": "text", "text": added}]
        encoded = ctx.policy.encode({**raw, "messages": (*earlier, {**last, "content": content})})
        done = turn.completion
        return replace(turn, completion=replace(done, others={**done.others, self.name: encoded}))


@dataclass(frozen=True)
class ContextValues(ForwardAnnotator):
    """Values of the policy's value head in another context of the same choices.

    Args:
        context: of `data.transforms`.
    """

    context: str = "anchor"

    def writes(self) -> frozenset[str]:
        return frozenset({"values"})

    def needs(self) -> frozenset[str]:
        return frozenset({"values"})

    def contexts(self) -> frozenset[str]:
        return frozenset({self.context})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        inputs = batch.with_context(self.context)
        return batch.with_columns(values=score_rows(ctx.policy, inputs, lambda out: out.values, self.rows, ctx.device))


@dataclass(frozen=True)
class ContextValue(SquaredValue):
    """Half the squared error of the return that the value head predicts in another context.

    Args:
        clip: as in `SquaredValue`.
        context: of `data.transforms`.
    """

    context: str = "anchor"

    def needs(self) -> frozenset[str]:
        return frozenset()  # of the plain context; `ContextValues` asks for the head

    def others(self) -> frozenset[str]:
        return frozenset({self.context})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return super().__call__(out.other(self.context, "context_value"), batch)
