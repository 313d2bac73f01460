"""Solutions with labelled steps, some of them wrong: what a process reward model is trained on."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mmrl.core.errors import check_interval
from mmrl.core.rng import derive_rng
from mmrl.core.types import Episode, Prompt
from tasks.generated import SeededTask


@dataclass(frozen=True, kw_only=True)
class LabelledSteps(SeededTask):
    """Problems of a task, each with one solution in `Prompt.info["steps"]` and `["step_labels"]`, true for right steps.

    Prompts and split are those of the task whose name it has.

    Args:
        flipped_fraction: share of the training labels that are wrong; those of held-out problems are right.
    """

    flipped_fraction: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval(f"task {self.name!r}:", "[0, 0.5)", flipped_fraction=self.flipped_fraction)

    @abstractmethod
    def write_steps(self, problem: Any, rng: np.random.Generator) -> tuple[list[str], list[bool]]:
        """Draw a solution, right or wrong, and the right label of each of its steps."""

    def __getitem__(self, index: int) -> Prompt:
        prompt = super().__getitem__(index)
        rng = derive_rng(self.name, "labelled steps", self.split, self.seed, index)
        steps, labels = self.write_steps(self.problem(index), rng)
        if self.split == "train":
            labels = [label != bool(rng.random() < self.flipped_fraction) for label in labels]
        return replace(prompt, info={**prompt.info, "steps": steps, "step_labels": labels})

    def score(self, episode: Episode) -> dict[str, float]:
        """Scores of the labels, as the rollout `ScoredSteps` gives them."""
        return dict(episode.info.get("scores", {}))

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        return [self.score(episode) for episode in episodes]
