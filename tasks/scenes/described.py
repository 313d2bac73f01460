"""Counting in a picture, or in words that state the same facts: "r b r. Squares red?"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mmrl.core.types import Prompt
from tasks.scenes.captions import CaptionedCounting
from tasks.scenes.task import SceneProblem

MODALITIES = ("image", "text", "both")


@dataclass(frozen=True, kw_only=True)
class DescribedCounting(CaptionedCounting):
    """Questions of `CaptionedCounting` about an image, about its caption in words, or half of them about either.

    Text and image ask about the same scenes, so that what is learned from words can be measured on images; scenes of
    the two splits differ. info["task"] of a prompt is "image" or "text". Source: MedVLThinker, 2025, training on text
    and on images, arXiv:2508.02669.

    Args:
        modality: "image", "text" or "both".
        thoughts: demonstrations begin with a caption; otherwise they are the answer alone.
    """

    modality: str = "image"
    thoughts: bool = True
    objects: Sequence[int] = (0, 3)
    distractors: Sequence[int] = (0, 1)

    name = "scenes_described"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.modality not in MODALITIES:
            raise ValueError(f"task {self.name!r}: modality must be one of {MODALITIES}, got {self.modality!r}")

    def write_prompt(self, problem: SceneProblem, key: str) -> Prompt:
        prompt = super().write_prompt(problem, key)
        number = int(key.rpartition("/")[2])
        if self.modality == "image" or (self.modality == "both" and number % 2 == 0):
            return replace(prompt, info={**prompt.info, "task": "image"})
        caption = problem.text.partition("</think>")[0].removeprefix("<think>")
        words = f"{caption}. {problem.question}"
        messages = ({"role": "user", "content": [{"type": "text", "text": words}]},)
        return replace(prompt, messages=messages, images=(), info={**prompt.info, "task": "text"})

    def demonstrate(self, index: int) -> str:
        return super().demonstrate(index) if self.thoughts else self.write_answer(str(self.problem(index).answer))
