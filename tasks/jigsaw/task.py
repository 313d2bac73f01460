"""Image question: where does each tile of a shuffled photo belong?"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from mmrl.core.types import Prompt
from tasks.answers import AnswerTask
from tasks.checks import check_index, check_split
from tasks.generated import ask_about_images
from tasks.jigsaw.data import PhotoSquare, join_tiles, pixels, puzzle, tiles
from tasks.jigsaw.verify import verify

QUESTION = "The four quarters of a photo were shuffled. Which place does each belong to? Answer as in 2 4 1 3."


@dataclass(frozen=True)
class Jigsaw(AnswerTask):
    """Puzzles from photos; held-out crops come from bands of the photos that are never trained on.

    The answer names, for the tiles shown in reading order, the places from 1 (in reading order) they belong to.
    Source: Jigsaw-R1, "A Study of Rule-based Visual Reinforcement Learning with Jigsaw Puzzles", 2025.

    Args:
        size: side of the image in pixels, a multiple of 2 rows and of 2 columns, so of 4 for 2x2.
        rows: of tiles.
        columns: of tiles.
        border: width of the black frame of each shown tile as a share of its side; it hides the seams.
        count: problems of the train split.
        held_out_count: problems of the held-out split.
        question: what is asked about the image.
        split: "train" or "held_out".
        held_out_fraction: share of the width of each photo that is kept for the held-out split.
        seed: of the split and the crops; part of the task, not of the run.
    """

    size: int = 32
    rows: int = 2
    columns: int = 2
    border: float = 0.0
    count: int = 4096
    held_out_count: int = 512
    question: str = QUESTION
    split: str = "train"
    held_out_fraction: float = 0.25
    seed: int = 0

    name = "jigsaw"
    packages = ("skimage",)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_split(self.name, self.split)
        if not 0.2 <= self.held_out_fraction <= 0.8:
            raise ValueError(
                f"task {self.name!r}: held_out_fraction must lie between 0.2 and 0.8 so that crops fit into both "
                f"bands of each photo, got {self.held_out_fraction}"
            )
        if min(self.rows, self.columns) < 1 or self.tiles < 2 or not 0 <= self.border < 0.5:
            raise ValueError(
                f"task {self.name!r}: rows and columns must make at least 2 tiles and border lie in [0, 0.5), "
                f"got {self.rows} x {self.columns} and {self.border}"
            )
        step = math.lcm(2 * self.rows, 2 * self.columns)
        if self.size < 8 or self.size % step:
            raise ValueError(
                f"task {self.name!r}: size must be a multiple of {step} pixels, at least 8, for {self.rows} x "
                f"{self.columns} tiles, got {self.size}"
            )
        if self.count < 1 or self.held_out_count < 1:
            raise ValueError(f"task {self.name!r}: count and held_out_count must be at least 1")

    @property
    def tiles(self) -> int:
        """Number of tiles."""
        return self.rows * self.columns

    def __len__(self) -> int:
        return self.count if self.split == "train" else self.held_out_count

    def __getitem__(self, index: int) -> Prompt:
        check_index(self, index)
        crop, places = puzzle(self.size, self.held_out_fraction, self.seed, self.split, index, self.rows, self.columns)
        return self.write_prompt(index, crop, places)

    def write_prompt(self, index: int, crop: PhotoSquare, places: tuple[int, ...]) -> Prompt:
        """Write the prompt of a shuffled crop: the tile that is shown k-th belongs to place places[k], from 0."""
        return self.build_prompt(
            index, crop, self.question, tuple(place + 1 for place in places), self.shuffle(crop, places)
        )

    def build_prompt(self, index: int, crop: PhotoSquare, question: str, answer: object, *images: np.ndarray) -> Prompt:
        """Build a prompt that names its crop in `info`."""
        return Prompt(
            key=f"{self.name}/{self.split}/{index}",
            messages=ask_about_images(question, len(images)),
            images=images,
            answer=answer,
            info={"photo": crop.photo, "left": crop.left, "top": crop.top, "side": crop.side},
        )

    def shuffle(self, crop: PhotoSquare, places: tuple[int, ...]) -> np.ndarray:
        """Draw the tiles of a crop in the order of `places`, uint8 [size, size, 3]."""
        pieces = tiles(pixels(crop, self.size), self.rows, self.columns)[list(places)]
        for axis in (1, 2):
            width = round(self.border * pieces.shape[axis])
            edges = np.r_[:width, pieces.shape[axis] - width : pieces.shape[axis]]
            pieces[(slice(None),) * axis + (edges,)] = 0
        return join_tiles(pieces, self.rows, self.columns)

    def on(self, split: str) -> Self:
        return replace(self, split=split)

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        return verify(answer, prompt.answer)

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        return self.write_answer(" ".join(map(str, rng.permutation(self.tiles) + 1)))

    def demonstrate(self, index: int) -> str:
        return self.write_answer(" ".join(map(str, self[index].answer)))
