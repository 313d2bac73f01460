"""Image question: "Which digit is this?"."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mmrl.core.errors import check_interval
from mmrl.core.types import Prompt
from tasks.answers import AnswerTask
from tasks.checks import check_index, check_split
from tasks.digits.data import load_scans, members
from tasks.digits.verify import verify


@dataclass(frozen=True)
class Digits(AnswerTask):
    """scikit-learn's 1797 handwritten digits; held-out scans, stratified by digit, are never trained on.

    Args:
        size: side of the image in pixels, a multiple of 8; every scanned pixel becomes a square block.
        question: what is asked about the image.
        split: "train" or "held_out".
        held_out_fraction: share of the scans of each digit that is kept for the held-out split.
        seed: of the split; part of the task, not of the run.
    """

    size: int = 32
    question: str = "Which digit is this?"
    split: str = "train"
    held_out_fraction: float = 0.25
    seed: int = 0

    name = "digits"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_split(self.name, self.split)
        check_interval(f"task {self.name!r}:", "(0, 1)", held_out_fraction=self.held_out_fraction)
        if self.size < 8 or self.size % 8:
            raise ValueError(f"task {self.name!r}: size must be a multiple of 8 pixels, got {self.size}")

    @property
    def _members(self) -> tuple[int, ...]:
        return members(self.held_out_fraction, self.seed, self.split)

    def __len__(self) -> int:
        return len(self._members)

    def __getitem__(self, index: int) -> Prompt:
        check_index(self, index)
        scan = self._members[index]
        images, digits = load_scans(self.size)
        content = [{"type": "image"}, {"type": "text", "text": self.question}]
        return Prompt(
            key=f"{self.name}/{self.split}/{index}",
            messages=({"role": "user", "content": content},),
            images=(images[scan].copy(),),
            answer=int(digits[scan]),
            info={"scan": scan},
        )

    def on(self, split: str) -> Digits:
        return replace(self, split=split)

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        return verify(answer, prompt.answer)

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        return self.write_answer(str(rng.integers(10)))

    def demonstrate(self, index: int) -> str:
        return self.write_answer(str(self[index].answer))
