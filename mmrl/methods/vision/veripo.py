"""VerIPO: phases of GRPO alternate with phases of DPO on preference pairs of verified rollouts.

VerIPO: Cultivating Long Reasoning in Video-LLMs via Verifier-Guided Iterative Policy Optimization, 2025,
arXiv:2505.19000.

- whether the answer follows from the reasoning, by rule: `follows_from_reasoning`
- pairs of verified rollouts: `select_pair`, `VerifiedPairs`
- problems that are always solved leave: `drop_easy`, `DropEasy`
- phases: warm-start stages of recipes that name each other
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mmrl.core.groups import get_score, group_episodes
from mmrl.core.rng import derive_rng
from mmrl.core.types import Context, Episode
from mmrl.curricula.base import Curriculum
from mmrl.curricula.history import PromptHistory
from mmrl.rewards.extract import LastNumber, Tags
from mmrl.rewards.shaping import repeated_ngrams
from mmrl.transforms.base import EpisodeTransform
from mmrl.transforms.best_worst import label_preference


def follows_from_reasoning(completion: str) -> float:
    """1 if the answer in tags is the last number before them, thoughts included, else 0: a rule in place of a judge."""
    answer, before = Tags()(completion), completion.rpartition("<answer>")[0]
    last = LastNumber().find(before)
    return float(answer is not None and last is not None and answer == last)


@dataclass(frozen=True)
class Verification:
    """A verifier's judgement on a rollout: correctness, consistency, repetition and length."""

    correct: bool
    consistent: bool  # the answer follows from the reasoning
    degenerate: bool  # repetitive
    length: int  # tokens

    @property
    def good(self) -> bool:
        return self.correct and self.consistent and not self.degenerate


def select_pair(verdicts: Sequence[Verification]) -> tuple[int, int] | None:
    """Return the indices of the chosen and the rejected rollout of a prompt; None without one of each.

    The preferred one is the longest that is correct, consistent and not degenerate. The rejected one is a wrong one, or
    without one an inconsistent one, or a degenerate one; of several the longest, of equals the first. Source: VerIPO,
    2025, rollout-aware verifier, arXiv:2505.19000; the order among rejected ones is ours.
    """
    places = range(len(verdicts))
    good = [i for i in places if verdicts[i].good]
    bad = [i for i in places if not verdicts[i].good]
    if not good or not bad:
        return None
    kind = {i: (not verdicts[i].correct, not verdicts[i].consistent, verdicts[i].length) for i in bad}
    return max(good, key=lambda i: verdicts[i].length), max(bad, key=kind.__getitem__)


@dataclass(frozen=True)
class VerifiedPairs(EpisodeTransform):
    """Keeps of each group the pair of `select_pair`, labelled for `DPOLoss`. Source: VerIPO, 2025, arXiv:2505.19000.

    Args:
        correct_score: "reward", or the name of a score; 1 or more is correct.
        consistent_score: score of a judge of the reasoning, 1 where the answer follows; none judges nothing.
        ngram: words whose repetition is counted.
        max_repeated: largest share of n-grams that occurred before.
    """

    correct_score: str = "exact"
    consistent_score: str | None = "follows_from_reasoning"
    ngram: int = 4
    max_repeated: float = 0.2

    min_group_size = 2

    def writes(self) -> frozenset[str]:
        return frozenset({"preference"})

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        out = []
        for group in group_episodes(episodes).values():
            pair = select_pair([self._verify(episode) for episode in group])
            out += [] if pair is None else [label_preference(group[i], sign) for i, sign in zip(pair, (1, -1))]
        spare = next((episode for episode in episodes if episode.turns), None)
        return out or ([] if spare is None else [label_preference(spare, 0)])  # 0: not trained on

    def _verify(self, episode: Episode) -> Verification:
        consistent = self.consistent_score is None or get_score(episode, self.consistent_score) >= 1
        degenerate = repeated_ngrams(str(episode.output), self.ngram, 1.0) > self.max_repeated
        return Verification(get_score(episode, self.correct_score) >= 1, consistent, degenerate, episode.tokens)


def drop_easy(rates: Mapping[int, float], fraction: float) -> set[int]:
    """Return the problems to drop: this fraction, rounded down, of those with a success rate of 1, the first ones."""
    easy = [index for index, rate in rates.items() if rate >= 1]
    return set(easy[: int(fraction * len(easy) + 1e-9)])


class DropEasy(Curriculum):
    """Selects shuffled problems, and drops a fraction of those with a success rate of 1 after each pass.

    Source: VerIPO, 2025, arXiv:2505.19000, which filters between its phases.

    Args:
        fraction: dropped share of the problems with a success rate of 1 at their last visit.
        score_name: "reward", or the name of a score, in [0, 1].
    """

    def __init__(self, fraction: float = 0.8, score_name: str = "exact"):
        if not 0 <= fraction < 1:
            raise ValueError(f"curriculum.fraction must be in [0, 1), got {fraction}; else all problems could leave")
        self.fraction, self.history = fraction, PromptHistory(score_name)
        self._order: list[int] = []
        self._position, self._passes = 0, 0

    def select(self, count: int, ctx: Context) -> list[int]:
        indices: list[int] = []
        while len(indices) < count:
            if self._position == len(self._order):
                self._begin_pass(ctx)
            part = self._order[self._position : self._position + count - len(indices)]
            indices, self._position = indices + part, self._position + len(part)
        return indices

    def _begin_pass(self, ctx: Context) -> None:
        pool = self._order or list(range(len(ctx.task)))
        rates = {index: self.history.rates[index][-1] for index in pool if index in self.history.rates}
        pool = sorted(set(pool) - drop_easy(rates, self.fraction))
        self._order = [pool[i] for i in derive_rng("drop_easy", ctx.seed, self._passes).permutation(len(pool))]
        self._position, self._passes = 0, self._passes + 1

    def observe(self, groups: Sequence[Sequence[Episode]]) -> None:
        self.history.observe(groups)

    def state_dict(self) -> dict[str, Any]:
        places = {"order": list(self._order), "position": self._position, "passes": self._passes}
        return {**self.history.state_dict(), **places}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.history.load_state_dict(state)
        self._order, self._position, self._passes = list(state["order"]), state["position"], state["passes"]
