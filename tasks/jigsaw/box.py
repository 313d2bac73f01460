"""Image question: in which box of a photo does a piece of it lie?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mmrl.core.rng import derive_rng
from mmrl.core.types import Prompt
from tasks.jigsaw.data import PhotoSquare, pixels
from tasks.jigsaw.task import Jigsaw
from tasks.jigsaw.verify import verify_box


@dataclass(frozen=True)
class JigsawBox(Jigsaw):
    """A photo, and a piece of the size of one tile that is enlarged to the same side; the answer is the piece's box.

    The box is "x1 y1 x2 y2" in pixels of the photo, x to the right and y down, edges between pixels.
    """

    question: str = "The second image is a piece of the first one. Where? Answer x1 y1 x2 y2 in pixels."

    name = "jigsaw_box"

    def write_prompt(self, index: int, crop: PhotoSquare, places: tuple[int, ...]) -> Prompt:
        rng = derive_rng("jigsaw", "box", self.seed, self.split, index)
        image = pixels(crop, self.size)
        height, width = self.size // self.rows, self.size // self.columns
        x, y = int(rng.integers(self.size - width + 1)), int(rng.integers(self.size - height + 1))
        piece = image[y : y + height, x : x + width].repeat(self.rows, axis=0).repeat(self.columns, axis=1)
        return self.build_prompt(index, crop, self.question, (x, y, x + width, y + height), image, piece)

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        return verify_box(answer, prompt.answer, self.size)

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        (x1, x2), (y1, y2) = (sorted(rng.permutation(self.size + 1)[:2].tolist()) for _ in range(2))
        return self.write_answer(f"{x1} {y1} {x2} {y2}")
