"""Image question: where does one tile of a shuffled photo lie, seen from another?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mmrl.core.rng import derive_rng
from mmrl.core.types import Prompt
from tasks.jigsaw.data import PhotoSquare
from tasks.jigsaw.task import Jigsaw
from tasks.jigsaw.verify import verify_choice

RELATIONS = {
    (0, -1): "left",
    (0, 1): "right",
    (-1, 0): "above",
    (1, 0): "below",
    (-1, -1): "above left",
    (-1, 1): "above right",
    (1, -1): "below left",
    (1, 1): "below right",
}
"""What a tile is from another, by the signs of the differences of their rows and columns."""


@dataclass(frozen=True)
class JigsawPair(Jigsaw):
    """Two tiles of a shuffled photo, numbered as they are shown; the answer is the letter of their relation.

    Args:
        question: {a} and {b} stand for the tiles, {choices} for the relations and their letters.
    """

    question: str = "In the whole photo, where does shown tile {a} lie, seen from shown tile {b}? {choices}"

    name = "jigsaw_pair"

    @property
    def choices(self) -> tuple[str, ...]:
        """The relations that tiles of this grid can have."""
        places = [divmod(place, self.columns) for place in range(self.tiles)]
        relations = {_compare(a, b) for a in places for b in places if a != b}
        return tuple(name for name in RELATIONS.values() if name in relations)

    def write_prompt(self, index: int, crop: PhotoSquare, places: tuple[int, ...]) -> Prompt:
        rng = derive_rng("jigsaw", "pair", self.seed, self.split, index)
        a, b = rng.permutation(self.tiles)[:2].tolist()
        relation = _compare(divmod(places[a], self.columns), divmod(places[b], self.columns))
        choices = ", ".join(f"{chr(65 + i)} {name}" for i, name in enumerate(self.choices))
        question = self.question.replace("{a}", str(a + 1)).replace("{b}", str(b + 1)).replace("{choices}", choices)
        answer = chr(65 + self.choices.index(relation))
        return self.build_prompt(index, crop, question, answer, self.shuffle(crop, places))

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        return verify_choice(answer, prompt.answer, len(self.choices))

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        return self.write_answer(chr(65 + int(rng.integers(len(self.choices)))))

    def demonstrate(self, index: int) -> str:
        return self.write_answer(self[index].answer)


def _compare(place: tuple[int, int], other: tuple[int, int]) -> str:
    row, column = place[0] - other[0], place[1] - other[1]
    return RELATIONS[(row > 0) - (row < 0), (column > 0) - (column < 0)]
