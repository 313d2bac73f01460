"""Image question: where to click to follow an instruction?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmrl.core.types import Prompt
from mmrl.rewards.boxes import area, centre, contains, grounding_reward, iou, parse_box, parse_numbers
from tasks.checks import final_line
from tasks.clicks.widgets import COLOURS, KINDS, THEMES, Box, Widget, aspect, draw_widget
from tasks.generated import GeneratedTask, ask_about_images, to_tuples

FORMS = ("point", "box")
VERBS = {
    "button": "Press",
    "field": "Type into",
    "checkbox": "Tick",
    "radio": "Choose",
    "slider": "Move",
    "toggle": "Flip",
}
SMALLEST = 5  # pixels; below, kinds look alike
BEST = 1.375  # of GUI-G1's reward
_PLACES = 40  # tries of a widget's place


@dataclass(frozen=True)
class Clicks(GeneratedTask):
    """Windows with coloured widgets; the answer is a point in the named one, or its box. No window is in both splits.

    Source: GUI-G1, "Understanding R1-Zero-Like Training for Visual Grounding in GUI Agents", arXiv:2505.15810.

    Args:
        size: side of the image in pixels.
        widgets: fewest and most widgets.
        kinds: kinds of widgets that are drawn.
        heights: smallest and largest height of a widget as a fraction of the image's.
        theme: light, dark or any.
        form: "point" for "x y", "box" for "x1 y1 x2 y2".
        units: number of units across the image; None counts in pixels.
        question: the user's turn; {verb} and {name} stand for what is done to which widget.
    """

    size: int = 64
    widgets: Sequence[int] = (3, 5)
    kinds: Sequence[str] = KINDS
    heights: Sequence[float] = (0.1, 0.18)
    theme: str = "any"
    form: str = "point"
    units: int | None = None
    question: str = "{verb} the {name}."

    name = "clicks"

    def __post_init__(self) -> None:
        super().__post_init__()
        to_tuples(self, "widgets", "kinds", "heights")
        if not self.kinds or len(set(self.kinds)) < len(self.kinds) or not set(self.kinds) <= set(KINDS):
            raise ValueError(f"task {self.name!r}: kinds must be distinct ones of {KINDS}, got {self.kinds}")
        if self.form not in FORMS or self.theme not in (*THEMES, "any"):
            raise ValueError(
                f"task {self.name!r}: form must be one of {FORMS} and theme light, dark or any, got {self.form!r} and "
                f"{self.theme!r}"
            )
        most = len(self.kinds) * len(COLOURS)
        if len(self.widgets) != 2 or not 1 <= self.widgets[0] <= self.widgets[1] <= most:
            raise ValueError(
                f"task {self.name!r}: widgets must be the fewest and the most, from 1 to {most}, got "
                f"{list(self.widgets)}"
            )
        if len(self.heights) != 2 or not self.heights[0] <= self.heights[1] <= 0.24 or self._heights[0] < SMALLEST:
            raise ValueError(
                f"task {self.name!r}: heights must be the smallest and the largest, at least {SMALLEST} pixels of "
                f"{self.size} and at most 0.24, got {self.heights}"
            )
        if self.units is not None and self.units * self.heights[0] < 2:
            raise ValueError(
                f"task {self.name!r}: units={self.units} must make the lowest widget at least 2 units high; give "
                f"{round(2 / self.heights[0] + 0.5)} or more"
            )

    @property
    def limit(self) -> int:
        """The largest coordinate."""
        return self.size if self.units is None else self.units

    @property
    def _heights(self) -> tuple[int, int]:
        return round(self.heights[0] * self.size), round(self.heights[1] * self.size)

    def draw(self, rng: np.random.Generator) -> tuple[str, tuple[Widget, ...]] | None:
        theme = self.theme if self.theme in THEMES else list(THEMES)[rng.integers(len(THEMES))]
        count = int(rng.integers(self.widgets[0], self.widgets[1], endpoint=True))
        names = rng.permutation(len(self.kinds) * len(COLOURS))[:count].tolist()
        placed: list[Widget] = []
        for name, height in zip(names, rng.integers(*self._heights, endpoint=True, size=count).tolist()):
            kind, colour = self.kinds[name // len(COLOURS)], list(COLOURS)[name % len(COLOURS)]
            width = round(height * aspect(kind))
            for x, y in rng.random((_PLACES, 2)).tolist():
                x0 = 1 + int(x * (self.size - width - 1))
                y0 = self._bar + 1 + int(y * (self.size - self._bar - height - 1))
                box = (x0, y0, x0 + width, y0 + height)
                if all(_are_apart(box, other.box) for other in placed):
                    placed.append(Widget(kind, colour, box))
                    break
            else:
                return None
        return theme, tuple(placed)

    @property
    def _bar(self) -> int:
        """Height of the title bar."""
        return self.size // 12

    def split_key(self, problem: tuple[str, tuple[Widget, ...]]) -> str:
        return repr(sorted((w.kind, w.colour, w.box) for w in problem[1]))

    def render(self, problem: tuple[str, tuple[Widget, ...]]) -> np.ndarray:
        """Draw a window, uint8 [size, size, 3]."""
        window, bar = THEMES[problem[0]]
        image = np.empty((self.size, self.size, 3), np.uint8)
        image[:], image[: self._bar] = window, bar
        for widget in problem[1]:
            draw_widget(image, widget)
        return image

    def write_prompt(self, problem: tuple[str, tuple[Widget, ...]], key: str) -> Prompt:
        target = problem[1][0]
        question = self.question.replace("{verb}", VERBS[target.kind]).replace(
            "{name}", f"{target.colour} {target.kind}"
        )
        return Prompt(
            key=key,
            messages=ask_about_images(question),
            images=(self.render(problem),),
            answer=self._to_units(target.box),
            info={"widgets": problem[1], "target_share": area(target.box) / self.size**2},
        )

    def _to_units(self, box: Box) -> Box:
        x1, y1, x2, y2 = (round(edge * self.limit / self.size) for edge in box)
        return x1, y1, x2, y2

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """exact: 1 if the point, or the middle of the box, lies in the widget; format.

        For boxes also iou; gui, GUI-G1's reward hit + IoU / 4 + edge closeness / 8, divided by its maximum; and size,
        a / (a + g) of the areas a of the box and g of the widget: 1/2 if they are equal, less for smaller boxes.
        small is exact (gui for boxes) times the weight of small targets, see `weigh_size`.
        """
        final, truth = final_line(answer), prompt.answer
        weight = weigh_size(area(truth) / self.limit**2)
        if self.form == "point":
            point = parse_numbers(final, 2, self.limit)
            hit = float(point is not None and contains(truth, point))
            return {"exact": hit, "small": hit * weight, "format": float(point is not None)}
        box = parse_box(final, self.limit)
        if box is None:
            return dict.fromkeys(("exact", "iou", "gui", "size", "small", "format"), 0.0)
        gui = grounding_reward(box, truth, self.limit, self.limit) / BEST
        hit = float(contains(truth, centre(box)))
        size = area(box) / (area(box) + area(truth))
        return {"exact": hit, "iou": iou(box, truth), "gui": gui, "size": size, "small": gui * weight, "format": 1.0}

    def demonstrate(self, index: int) -> str:
        box = self._to_units(self.problem(index)[1][0].box)
        numbers = box if self.form == "box" else (int(edge) for edge in centre(box))
        return self.write_answer(" ".join(map(str, numbers)))


def weigh_size(share: float) -> float:
    """Weight from 1/3 to 1 of a target that covers a share of the image: (1/2 + min(1, 0.01 / share)) / 1.5.

    GUI-G1 weighs by 1/2 + (1 / share - min) / (max - min) over a data set; here 1 / share is divided by that of a
    target of a hundredth of the image, so that a problem has the same weight in every set.
    Source: Zhou et al., "GUI-G1", arXiv 2505.15810, section 3.3.
    """
    return (0.5 + min(1.0, 0.01 / share)) / 1.5


def _are_apart(box: Box, other: Box) -> bool:
    """Whether at least one pixel lies between two boxes."""
    return box[2] < other[0] or other[2] < box[0] or box[3] < other[1] or other[3] < box[1]
