"""Image question: which SVG draws this?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mmrl.rewards.limits import LimitPassed, run_limited
from tasks.drawings.program import ShapeCommand
from tasks.drawings.svg import find_svg, render_svg
from tasks.drawings.task import Drawing, Drawings, Problem

_SECONDS = 1.0  # of processor time for an answer


@dataclass(frozen=True)
class SVGDrawings(Drawings):
    """Images of rectangles and circles; the answer is SVG, which resvg renders.

    Args:
        longest: most elements of an answer, with the `svg` around the shapes.
    """

    longest: int = 24
    question: str = "Which SVG draws this?"

    name = "drawings_svg"
    packages = ("resvg_py",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.longest <= self.shapes[1]:
            raise ValueError(
                f"task {self.name!r}: longest counts the svg element too, so {self.shapes[1]} shapes need at least "
                f"longest={self.shapes[1] + 1}, got {self.longest}"
            )

    def write(self, problem: Problem) -> str:
        shapes = "".join(map(_write_element, problem))
        return f'<svg viewBox="0 0 {self.units} {self.units}">{shapes}</svg>'

    def paint(self, problem: Problem) -> np.ndarray:
        image = render_svg(self.write(problem), self.size)
        assert image is not None  # our own SVG is square and well formed
        return image

    def draw_answer(self, answer: str) -> Drawing:
        svg = find_svg(answer, self.longest)
        if svg is None:
            return Drawing("unreadable")
        try:
            image = run_limited(_SECONDS, render_svg, svg, self.size)
        except LimitPassed as error:
            return Drawing(error.outcome)
        return Drawing("unreadable") if image is None else Drawing("drawn", svg, image)


def _write_element(shape: ShapeCommand) -> str:
    if shape.kind == "circle":
        x, y, radius = shape.numbers
        return f'<circle cx="{x}" cy="{y}" r="{radius}" fill="{shape.colour}"/>'
    x1, y1, x2, y2 = shape.numbers
    return f'<rect x="{x1}" y="{y1}" width="{x2 - x1}" height="{y2 - y1}" fill="{shape.colour}"/>'
