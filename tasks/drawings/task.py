"""Image question: which program draws this?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmrl.core.errors import check_at_least, check_interval
from mmrl.core.types import Episode, Prompt
from tasks.checks import check_range, final_line
from tasks.drawings.program import COLOURS, ShapeCommand, read_program, render, write_program
from tasks.drawings.verify import verify
from tasks.generated import GeneratedTask, ask_about_images, to_tuples

Problem = tuple[ShapeCommand, ...]
VISIBLE = 0.02  # least share of the pixels that change when a shape is left out


@dataclass(frozen=True)
class Drawing:
    """What became of an answer.

    Args:
        outcome: drawn, unreadable, or the name of the limit that it passed.
        written: the program.
        image: uint8 [size, size, 3]; None unless drawn.
    """

    outcome: str
    written: str = ""
    image: np.ndarray | None = None


@dataclass(frozen=True)
class Drawings(GeneratedTask):
    """Images of rectangles and circles; the answer is a program that is rendered and compared.

    A hash of the image decides the split, so that no image is in both.
    Source: Rodriguez et al., "Rendering-Aware Reinforcement Learning for Vector Graphics Generation", arXiv 2505.20793.

    Args:
        shapes: fewest and most shapes.
        units: units across the image; a program has whole numbers of them.
        size: side of the image in pixels.
        longest: most commands of an answer.
        question: what is asked about the image.
    """

    shapes: Sequence[int] = (1, 2)
    units: int = 8
    size: int = 64
    longest: int = 16
    question: str = "Which program draws this?"

    name = "drawings"

    def __post_init__(self) -> None:
        super().__post_init__()
        to_tuples(self, "shapes")
        check_range(self.name, "shapes", self.shapes, 1, self.longest)
        check_interval(f"task {self.name!r}:", "[4, 256]", units=self.units)
        check_at_least(max(8, self.units), f"task {self.name!r}:", size=self.size)

    def draw(self, rng: np.random.Generator) -> Problem | None:
        count = int(rng.integers(self.shapes[0], self.shapes[1], endpoint=True))
        shapes = tuple(self._draw_shape(rng) for _ in range(count))
        whole = self.paint(shapes)
        visible = all(
            (self.paint(shapes[:i] + shapes[i + 1 :]) != whole).any(2).mean() >= VISIBLE for i in range(count)
        )
        return shapes if visible else None

    def write(self, problem: Problem) -> str:
        """Write the reference answer."""
        return write_program(problem)

    def paint(self, problem: Problem) -> np.ndarray:
        """Draw a problem, uint8 [size, size, 3]."""
        return render(problem, self.units, self.size)

    def draw_answer(self, answer: str) -> Drawing:
        """Draw the program of an answer."""
        program = final_line(answer)
        shapes = read_program(program, self.units, self.longest)
        return Drawing("unreadable") if shapes is None else Drawing("drawn", program, self.paint(tuple(shapes)))

    def split_key(self, problem: Problem) -> str:
        return self.paint(problem).tobytes().hex()

    def write_prompt(self, problem: Problem, key: str) -> Prompt:
        return Prompt(
            key,
            ask_about_images(self.question),
            images=(self.paint(problem),),
            answer=self.write(problem),
            info={"shapes": len(problem)},
        )

    def score(self, episode: Episode) -> dict[str, float]:
        """The scores of `verify`; `info` gets the outcome: drawn, unreadable, or the limit that the answer passed."""
        answer = self.read_answer(episode)
        drawing = self.draw_answer(answer or "")
        episode.info["outcome"] = drawing.outcome
        return {**self.score_format(answer), **self._compare(drawing, episode.prompt)}

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        return self._compare(self.draw_answer(answer), prompt)

    def _compare(self, drawing: Drawing, prompt: Prompt) -> dict[str, float]:
        return verify(drawing.image, prompt.images[0], len(drawing.written), len(prompt.answer))

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        count = int(rng.integers(self.shapes[0], self.shapes[1], endpoint=True))
        return self.write_answer(self.write(tuple(self._draw_shape(rng) for _ in range(count))))

    def demonstrate(self, index: int) -> str:
        return self.write_answer(self.write(self.problem(index)))

    def _draw_shape(self, rng: np.random.Generator) -> ShapeCommand:
        colour = tuple(COLOURS)[int(rng.integers(len(COLOURS)))]
        if rng.integers(2):
            (x1, x2), (y1, y2) = (sorted(rng.permutation(self.units + 1)[:2].tolist()) for _ in range(2))
            return ShapeCommand("rect", (x1, y1, x2, y2), colour)
        radius = int(rng.integers(1, max(1, self.units // 3), endpoint=True))
        x, y = (int(rng.integers(radius, self.units - radius, endpoint=True)) for _ in range(2))
        return ShapeCommand("circle", (x, y, radius), colour)
