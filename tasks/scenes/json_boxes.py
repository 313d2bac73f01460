"""Boxes as JSON after a thought: <think>circle</think><answer>[{"bbox_2d": [1, 2, 5, 6]}]</answer>."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mmrl.core.types import Episode, Prompt
from mmrl.files.strict_json import BrokenJSON, parse_json
from tasks.checks import reply_text
from tasks.scenes.coordinates import CoordinateTask
from tasks.scenes.detection import Detection
from tasks.scenes.grounding import Grounding
from tasks.scenes.task import SceneProblem, find_target

FORM = re.compile(r"(?s)<think>(?:(?!</?think>).)*</think>\s*<answer>(?:(?!</?answer>).)*</answer>\s*")
"""A closed thought, then a closed answer, and nothing else."""
ABSENT = "None"
LONGEST = 4000  # characters of an answer that are read


@dataclass(frozen=True, kw_only=True)
class JSONBoxes(CoordinateTask):
    """Boxes in the form of VLM-R1's prompts: a thought, then a list of boxes as JSON in answer tags, or "None".

    `format` is 1 where the whole completion is a closed thought and a closed answer, and the answer is such a list; the
    thought of a demonstration is the description. A box with another "label" than the description makes an answer
    unreadable. Source: VLM-R1, 2025, section 3.2 and its prompts, arXiv:2504.07615.

    Args:
        instruction: behind the question.
        labels: demonstrations name the description in each box.
    """

    extract: str | dict[str, Any] | None = "tags"
    instruction: str = (
        " First output the thinking process in <think> </think> tags and then output the final answer in <answer> "
        "</answer> tags. Output the final answer in JSON format."
    )
    labels: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.extract != "tags":
            raise ValueError(f"task {self.name!r}: extract must be tags, got {self.extract!r}")

    def ask(self, rng: np.random.Generator) -> SceneProblem | None:
        problem = super().ask(rng)  # type: ignore[safe-super]  # that of the task beside it
        return None if problem is None else replace(problem, question=problem.question + self.instruction)

    def write_prompt(self, problem: SceneProblem, key: str) -> Prompt:
        prompt = super().write_prompt(problem, key)
        return replace(prompt, info={**prompt.info, "label": self._describe(problem)})

    def _describe(self, problem: SceneProblem) -> str:
        """What the boxes are of; "" where there is none."""
        if not problem.answer:
            return ""
        target = find_target(problem.scene)
        return self.phrase((target.shape, target.colour))

    def demonstrate(self, index: int) -> str:
        problem = self.problem(index)
        label = self._describe(problem)
        boxes = [problem.answer] if problem.answer and isinstance(problem.answer[0], int) else problem.answer or ()
        named = {"label": label} if self.labels else {}
        answer = json.dumps([{"bbox_2d": list(box), **named} for box in boxes]) if boxes else ABSENT
        return f"<think>{label}</think>{self.write_answer(answer)}"

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        (x1, x2), (y1, y2) = (sorted(rng.permutation(self.limit + 1)[:2].tolist()) for _ in range(2))
        return f"<think></think>{self.write_answer(json.dumps([{'bbox_2d': [x1, y1, x2, y2]}]))}"

    def score(self, episode: Episode) -> dict[str, float]:
        scores = super().score(episode)
        readable = read_boxes(self.read_answer(episode) or "", episode.prompt.info["label"]) is not None
        return {**scores, "format": float(readable and FORM.fullmatch(reply_text(episode)) is not None)}

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        boxes = read_boxes(answer, prompt.info["label"])
        lines = None if boxes is None else "; ".join(" ".join(map(str, box)) for box in boxes) or "none"
        return super().verify(lines or "", prompt)  # type: ignore[safe-super]


@dataclass(frozen=True, kw_only=True)
class JSONGrounding(JSONBoxes, Grounding):
    """The box of the described object, a list of one."""

    distractors: Sequence[int] = (1, 3)  # the base's defaults come before those of Grounding
    question: str = "Box of the {}?"

    name = "scenes_json_grounding"


@dataclass(frozen=True, kw_only=True)
class JSONDetection(JSONBoxes, Detection):
    """The boxes of all described objects, each with its label."""

    labels: bool = True
    question: str = "Boxes of all {}?"

    name = "scenes_json_detection"


def read_boxes(answer: str, label: str) -> list[list[int]] | None:
    """Read a list of boxes such as [{"bbox_2d": [1, 2, 5, 6], "label": "circle"}], or one alone; None for other text.

    "None" and [] have no box. A label, if there is one, must be `label`.
    """
    if answer.strip() == ABSENT:
        return []
    if len(answer) > LONGEST:
        return None
    try:
        value = parse_json(answer, "answer", "write a list of boxes")
    except BrokenJSON:
        return None
    items = value if isinstance(value, list) else [value]
    boxes = []
    for item in items:
        box = item.get("bbox_2d") if isinstance(item, dict) else None
        if not isinstance(box, list) or len(box) != 4 or any(type(edge) is not int or edge < 0 for edge in box):
            return None
        if item.get("label", label) != label or not item.keys() <= {"bbox_2d", "label"}:
            return None
        boxes.append(box)
    return boxes
