"""Image question: which SVG draws this?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tasks.drawings.program import Shape
from tasks.drawings.svg import is_plain, render_svg
from tasks.drawings.task import Drawings, Problem


@dataclass(frozen=True)
class SVGDrawings(Drawings):
    """Images of rectangles and circles; the answer is SVG on one line, which resvg renders.

    Args:
        longest: most elements of an answer.
    """

    longest: int = 24
    question: str = "Which SVG draws this?"

    name = "drawings_svg"

    def write(self, problem: Problem) -> str:
        shapes = "".join(map(_write_element, problem))
        return f'<svg viewBox="0 0 {self.units} {self.units}">{shapes}</svg>'

    def paint(self, problem: Problem) -> np.ndarray:
        image = render_svg(self.write(problem), self.size)
        assert image is not None  # our own SVG is square and well formed
        return image

    def paint_answer(self, answer: str) -> np.ndarray | None:
        return render_svg(answer, self.size) if is_plain(answer, self.longest) else None


def _write_element(shape: Shape) -> str:
    if shape.kind == "circle":
        x, y, radius = shape.numbers
        return f'<circle cx="{x}" cy="{y}" r="{radius}" fill="{shape.colour}"/>'
    x1, y1, x2, y2 = shape.numbers
    return f'<rect x="{x1}" y="{y1}" width="{x2 - x1}" height="{y2 - y1}" fill="{shape.colour}"/>'
