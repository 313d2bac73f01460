"""TraPO: majority-answer rewards on unlabelled problems with success-rate histories like those of labelled ones.

TraPO: A Semi-Supervised Reinforcement Learning Framework for Boosting LLM Reasoning, 2025, arXiv:2512.13106.

- the answer of a strict plurality of the completions: `majority_answer`
- how alike two histories of success rates are in shape: `trajectory_similarity`
- rewards of unlabelled problems, and which of them are trained on: `SelectByTrajectory`
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mmrl.core.errors import check_at_least, check_fraction, check_interval
from mmrl.core.groups import get_score, group_episodes
from mmrl.core.rng import derive_rng
from mmrl.core.types import Context, Episode
from mmrl.rewards.extract import build_extractor
from mmrl.transforms.base import StatefulTransform


def majority_answer(answers: Sequence[str | None]) -> str | None:
    """The most frequent answer; None at a tie, or where no completion has an answer."""
    counts = Counter(answer for answer in answers if answer is not None).most_common(2)
    if not counts or (len(counts) == 2 and counts[0][1] == counts[1][1]):
        return None
    return counts[0][0]


def trajectory_similarity(history: Sequence[float], references: Sequence[Sequence[float]]) -> float:
    """Mean cosine of the standardised history and the standardised references, all cut to the shortest reference.

    z(h) = (h - mean) / (std + 1e-8); a constant history has similarity 0. Source: TraPO, 2025, arXiv:2512.13106.
    """
    if not references:
        return 0.0
    length = min(len(history), *(len(reference) for reference in references))

    def standardise(rates: Sequence[float]) -> np.ndarray:
        cut = np.asarray(rates[:length], dtype=np.float64)
        if np.ptp(cut) == 0:  # less its mean, a constant can leave a rounding error, which has a direction
            return np.zeros(length)
        return (cut - cut.mean()) / (cut.std() + 1e-8)

    target = standardise(history)
    cosines = []
    for reference in references:
        other = standardise(reference)
        norm = float(np.linalg.norm(target) * np.linalg.norm(other))
        cosines.append(float(target @ other) / norm if norm > 0 else 0.0)
    return sum(cosines) / len(cosines)


@dataclass(frozen=True)
class SelectByTrajectory(StatefulTransform):
    """Rewards unlabelled problems by the majority answer, and drops those with low `trajectory_similarity`.

    A seeded fraction of the problems is labelled. The rewards of the others are 1 for completions with the majority
    answer and 0 for others, and 0 at a tie; their labels are not read. The mean reward at each visit is the history of
    a problem. In the first `warmup` iterations labelled groups alone are trained on. From then on an unlabelled group
    is kept if its similarity is among the highest `top_fraction` of the iteration's or at least `threshold`; kept
    histories join the references if `update_references` is set. Source: TraPO, 2025, arXiv:2512.13106.

    Args:
        labelled_fraction: of the problems, in (0, 1].
        warmup: iterations on labelled problems.
        top_fraction: of the unlabelled groups of an iteration, rounded up.
        threshold: similarity that is enough by itself.
        update_references: whether histories of kept problems become references.
        extract: how an answer is found in a completion, see `mmrl.rewards.extract`.
        score_name: score of labelled problems that becomes their reward.
        seed: of the choice of labelled problems.
    """

    labelled_fraction: float = 0.1
    warmup: int = 8
    top_fraction: float = 0.1
    threshold: float = 0.4
    update_references: bool = True
    extract: str = "text"
    score_name: str = "exact"
    seed: int = 0
    _histories: dict[int, list[float]] = field(default_factory=dict, init=False, repr=False)
    _matched: set[int] = field(default_factory=set, init=False, repr=False)  # unlabelled problems that are references

    min_group_size = 2

    def __post_init__(self) -> None:
        build_extractor(self.extract, "select_by_trajectory.extract")
        check_interval("select_by_trajectory", "(0, 1]", labelled_fraction=self.labelled_fraction)
        check_fraction("select_by_trajectory", top_fraction=self.top_fraction)
        check_at_least(0, "select_by_trajectory", warmup=self.warmup)

    def is_labelled(self, index: int) -> bool:
        """Whether the label of a problem is known."""
        return bool(derive_rng("labelled", self.seed, index).random() < self.labelled_fraction)

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        groups = group_episodes(episodes)
        # (slot, problem, success rate) of each group; gathered, so that all processes have the same histories
        local_visits = []
        for slot, group in groups.items():
            rewards = self._rewards(group)
            for episode, reward in zip(group, rewards):
                episode.reward = reward
            local_visits.append((slot, group[0].prompt.index, sum(rewards) / len(rewards)))
        visits = sorted(ctx.collector.gather(local_visits))
        for _, index, rate in visits:
            self._histories.setdefault(index, []).append(rate)
        slots = {slot for slot, index, _ in visits if self.is_labelled(index)} | self._match(visits, ctx)
        return [episode for slot, group in groups.items() if slot in slots for episode in group]

    def _rewards(self, group: Sequence[Episode]) -> list[float]:
        if self.is_labelled(group[0].prompt.index):
            return [float(get_score(episode, self.score_name)) for episode in group]
        extractor = build_extractor(self.extract)
        answers = [extractor(str(episode.output)) for episode in group]
        majority = majority_answer(answers)
        return [float(majority is not None and answer == majority) for answer in answers]

    def _match(self, visits: Sequence[tuple[int, int, float]], ctx: Context) -> set[int]:
        """Slots of the unlabelled groups to train on, the same on all ranks."""
        if ctx.iteration < self.warmup:
            return set()
        indices = [index for index in self._histories if self.is_labelled(index) or index in self._matched]
        references = [self._histories[index] for index in indices]
        # similarity of each unlabelled group of the iteration to the labelled and the matched problems
        scores = {
            slot: trajectory_similarity(self._histories[index], references)
            for slot, index, _ in visits
            if not self.is_labelled(index)
        }
        best = sorted(scores, key=lambda slot: -scores[slot])[: math.ceil(self.top_fraction * len(scores))]
        slots = {slot for slot in scores if scores[slot] >= self.threshold or slot in best}
        if self.update_references:
            self._matched.update(index for slot, index, _ in visits if slot in slots)
        return slots

    def state_dict(self) -> dict[str, Any]:
        histories = {index: list(rates) for index, rates in self._histories.items()}
        return {"histories": histories, "matched": sorted(self._matched)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._histories.clear()
        self._histories.update({int(index): list(rates) for index, rates in state.get("histories", {}).items()})
        self._matched.clear()
        self._matched.update(state.get("matched", []))
