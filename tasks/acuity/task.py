"""Image question: in which direction do the stripes of a small patch run?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmrl.core.types import Prompt
from tasks.acuity.patch import COLOURS, DIRECTIONS, GRAINS, PERIOD, PHASES, Patch, draw_image
from tasks.checks import check_range, final_line
from tasks.generated import GeneratedTask, ask_about_images, to_tuples

_PLACES = 100  # tries of a patch's place


@dataclass(frozen=True)
class Acuity(GeneratedTask):
    """Small striped patches in a large image, whose stripes cannot be seen in the whole image at a low resolution.

    A policy that sees 32 x 32 pixels sees where a patch is and not its stripes; with the tool `Zoom` or `Crop` it can
    look closer. The expert zooms in on the cell that the patch's centre lies in and then answers.

    Source: task of VRAG-RL's crops at the original resolution, arXiv:2505.22019; the images are ours.

    Args:
        size: side of the image in pixels.
        diameter: of a patch in pixels; its stripes are 6 pixels apart.
        patches: number of patches, each in a colour of its own; the question names one of them.
        units: number of cells across the image, in which the expert names places.
        call: how the expert calls for a closer look, with {x} and {y}.
        answers: words for horizontal, rising, vertical and falling stripes.
        question: the user's turn; {colour} stands for the colour of the patch.
    """

    size: int = 256
    diameter: int = 28
    patches: Sequence[int] = (1, 1)
    units: int = 8
    call: str = "[{x} {y}]"
    answers: Sequence[str] = DIRECTIONS
    question: str = "Stripes of the {colour} patch?"

    name = "acuity"

    def __post_init__(self) -> None:
        super().__post_init__()
        to_tuples(self, "patches", "answers")
        if not 2 * PERIOD <= self.diameter <= self.size / 4:
            raise ValueError(
                f"task {self.name!r}: diameter must be at least {2 * PERIOD} pixels and at most a quarter of "
                f"size={self.size}, got {self.diameter}"
            )
        check_range(self.name, "patches", self.patches, 1, len(COLOURS))
        if not 1 <= self.units <= self.size:
            raise ValueError(f"task {self.name!r}: units must lie between 1 and size={self.size}, got {self.units}")

        if len(set(self.answers)) != len(DIRECTIONS):
            raise ValueError(
                f"task {self.name!r}: answers must be different words for {DIRECTIONS}, got {list(self.answers)}"
            )

    def draw(self, rng: np.random.Generator) -> tuple[Patch, ...] | None:
        count = int(rng.integers(self.patches[0], self.patches[1], endpoint=True))
        patches: list[Patch] = []
        for number in rng.permutation(len(COLOURS))[:count].tolist():
            look = DIRECTIONS[rng.integers(len(DIRECTIONS))], int(rng.integers(PHASES)), int(rng.integers(GRAINS))
            for x, y in rng.integers(self.size - self.diameter, size=(_PLACES, 2), endpoint=True).tolist():
                if all(max(abs(x - p.left), abs(y - p.top)) > self.diameter for p in patches):
                    patches.append(Patch(list(COLOURS)[number], x, y, self.diameter, *look))
                    break
            else:
                return None
        return tuple(patches)

    def _name(self, patch: Patch) -> str:
        """Return the word for the direction of a patch's stripes."""
        return self.answers[DIRECTIONS.index(patch.direction)]

    def split_key(self, problem: tuple[Patch, ...]) -> str:
        return repr(sorted((p.colour, p.left, p.top, p.direction, p.phase) for p in problem))

    def write_prompt(self, problem: tuple[Patch, ...], key: str) -> Prompt:
        target = problem[0]
        return Prompt(
            key=key,
            messages=ask_about_images(self.question.replace("{colour}", target.colour)),
            images=(draw_image(problem, self.size),),
            answer=self._name(target),
            info={"box": target.box},
        )

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """format: 1 if the final line is a direction; exact: 1 if it is the right one."""
        final = final_line(answer)
        return {"exact": float(final == prompt.answer), "format": float(final in self.answers)}

    def demonstrate(self, index: int) -> str:
        return self.write_answer(self._name(self.problem(index)[0]))

    def script(self, index: int) -> list[str]:
        target = self.problem(index)[0]
        x, y = ((2 * edge + target.diameter) * self.units // (2 * self.size) for edge in (target.left, target.top))
        return [self.call.format(x=x, y=y), self.write_answer(self._name(target))]
