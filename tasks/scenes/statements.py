"""Several statements about one scene, each true or false: multi-select questions and perception checklists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmrl.core.types import Prompt
from tasks.checks import check_range, final_line
from tasks.scenes.task import SceneProblem, SceneTask

WORDS = ("no", "yes")


@dataclass(frozen=True, kw_only=True)
class Statements(SceneTask):
    """Which of N descriptions an object fits, one "yes" or "no" for each: a guess at all of them is rarely right.

    Source: multi-select questions of RS-EoT, and the checklists of PEARL, which ask for all facts in one prompt.

    Args:
        statements: number N of statements.
        objects: fewest and most objects.
    """

    statements: int = 4
    objects: Sequence[int] = (2, 4)
    distractors: Sequence[int] = (0, 0)
    question: str = "Is there a {}?"

    name = "scenes_statements"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "objects", tuple(self.objects))
        check_range(self.name, "objects", self.objects, 1)
        count = len({self.key(kind) for kind in self.kinds})
        if not 2 <= self.statements <= count - self.objects[1]:
            raise ValueError(
                f"task {self.name!r}: statements must be at least 2 and at most the {count} descriptions less the "
                f"{self.objects[1]} objects, got {self.statements}"
            )

    def ask(self, rng: np.random.Generator) -> SceneProblem | None:
        kinds = self.kinds
        count = int(rng.integers(self.objects[0], self.objects[1], endpoint=True))
        sample = [kinds[i] for i in rng.integers(len(kinds), size=count).tolist()]
        scene = self.build_scene(rng, sample)
        if scene is None:
            return None
        phrases = {self.phrase(kind): 1 for kind in sample}
        lacking = list(dict.fromkeys(self.phrase(kind) for kind in kinds if self.phrase(kind) not in phrases))
        labels = rng.integers(2, size=self.statements).tolist()
        if sum(labels) > len(phrases):
            return None
        sides = [[words[i] for i in rng.permutation(len(words)).tolist()] for words in (lacking, list(phrases))]
        lines = [f"{n}. {self.question.replace('{}', sides[want].pop())}" for n, want in enumerate(labels, start=1)]
        text = " ".join(WORDS[want] for want in labels)
        return SceneProblem(scene, "\n".join(["Answer yes or no to each.", *lines]), text, tuple(labels))

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """share: 1 - mean |y - y'| over the statements; exact: all are right; format: N words, each yes or no."""
        words = final_line(answer).split(" ", self.statements)
        if len(words) != self.statements or not set(words) <= set(WORDS):
            return {"exact": 0.0, "share": 0.0, "format": 0.0}
        right = sum(WORDS[want] == word for want, word in zip(prompt.answer, words))
        return {"exact": float(right == self.statements), "share": right / self.statements, "format": 1.0}
