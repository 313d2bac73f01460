"""Image question: where does each tile of a shuffled photo belong?"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mmrl.types import Prompt
from tasks.answers import AnswerTask
from tasks.checks import check_index, check_split
from tasks.jigsaw.data import join_tiles, pixels, puzzle, tiles
from tasks.jigsaw.verify import verify

QUESTION = "The four quarters of a photo were shuffled. Which place does each belong to? Answer as in 2 4 1 3."


@dataclass(frozen=True)
class Jigsaw(AnswerTask):
    """2x2 puzzles from photos; held-out crops come from bands of the photos that are never trained on.

    The answer names, for the tiles shown in reading order, the places 1 to 4 (in reading order) they belong to.

    Args:
        size: side of the image in pixels, a multiple of 4.
        count: problems of the train split.
        held_out_count: problems of the held-out split.
        question: what is asked about the image.
        split: "train" or "held_out".
        held_out_fraction: share of the width of each photo that is kept for the held-out split.
        seed: of the split and the crops; part of the task, not of the run.
    """

    size: int = 32
    count: int = 4096
    held_out_count: int = 512
    question: str = QUESTION
    split: str = "train"
    held_out_fraction: float = 0.25
    seed: int = 0

    name = "jigsaw"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_split(self.name, self.split)
        if not 0.2 <= self.held_out_fraction <= 0.8:
            raise ValueError(
                f"task {self.name!r}: held_out_fraction must lie between 0.2 and 0.8 so that crops fit into both "
                f"bands of each photo, got {self.held_out_fraction}"
            )
        if self.size < 8 or self.size % 4:
            raise ValueError(f"task {self.name!r}: size must be a multiple of 4 pixels, at least 8, got {self.size}")
        if self.count < 1 or self.held_out_count < 1:
            raise ValueError(f"task {self.name!r}: count and held_out_count must be at least 1")

    def __len__(self) -> int:
        return self.count if self.split == "train" else self.held_out_count

    def __getitem__(self, index: int) -> Prompt:
        check_index(self, index)
        crop, places = puzzle(self.size, self.held_out_fraction, self.seed, self.split, index)
        shown = tiles(pixels(crop, self.size))[list(places)]  # the tile shown k-th belongs to place places[k]
        content = [{"type": "image"}, {"type": "text", "text": self.question}]
        return Prompt(
            key=f"{self.name}/{self.split}/{index}",
            messages=({"role": "user", "content": content},),
            images=(join_tiles(shown),),
            answer=tuple(place + 1 for place in places),
            info={"photo": crop.photo, "left": crop.left, "top": crop.top, "side": crop.side},
        )

    def on(self, split: str) -> Jigsaw:
        return replace(self, split=split)

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        return verify(answer, prompt.answer)

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        return self.write_answer(" ".join(map(str, rng.permutation(4) + 1)))

    def demonstrate(self, index: int) -> str:
        return self.write_answer(" ".join(map(str, self[index].answer)))
