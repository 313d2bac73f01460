"""Image questions about symbols: what is in a cell of a grid, and in which cell is a symbol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmrl.core.types import Prompt
from tasks.checks import final_line
from tasks.generated import GeneratedTask, ask_about_images, to_tuples
from tasks.icons.glyphs import ICONS, draw_icon

COLOURS = ((200, 40, 40), (40, 80, 200), (20, 120, 50), (30, 30, 30))


@dataclass(frozen=True)
class IconGrid:
    """The symbols of a grid in reading order, the colour of each, the cell that is asked about, and the question."""

    names: tuple[str, ...]
    colours: tuple[int, ...]
    cell: int
    kind: str


@dataclass(frozen=True)
class Icons(GeneratedTask):
    """Symbols in a square grid; the answer is a cell's number in reading order, or a name. No grid is in both splits.

    Args:
        kinds: of find ("Which cell shows the anchor?") and name ("What is in cell 3?"); a problem has one of them.
        side: rows and columns of the grid.
        icons: names of symbols that are drawn; None for all.
        size: side of the image in pixels.
        find: question of kind find; {} stands for the symbol.
        ask: question of kind name; {} stands for the cell.
    """

    kinds: Sequence[str] = ("find", "name")
    side: int = 2
    icons: Sequence[str] | None = None
    size: int = 64
    find: str = "Which cell shows the {}?"
    ask: str = "What is in cell {}?"

    name = "icons"

    def __post_init__(self) -> None:
        super().__post_init__()
        to_tuples(self, "kinds")
        if self.icons is not None:
            to_tuples(self, "icons")
        if not self.kinds or not set(self.kinds) <= {"find", "name"}:
            raise ValueError(f"task {self.name!r}: kinds must be of find and name, got {list(self.kinds)}")
        if not set(self.known) <= set(ICONS) or len(set(self.known)) < len(self.known):
            raise ValueError(f"task {self.name!r}: icons must be distinct ones of {', '.join(ICONS)}")
        if not 1 <= self.side <= 9 or self.side**2 > len(self.known) or self.size < 12 * self.side:
            raise ValueError(
                f"task {self.name!r}: side must be from 1 to 9 with at least as many icons as cells and 12 pixels of "
                f"size for each, got side={self.side}, {len(self.known)} icons and size={self.size}"
            )

    @property
    def known(self) -> tuple[str, ...]:
        """The names of the symbols that are drawn."""
        return tuple(ICONS) if self.icons is None else tuple(self.icons)

    def draw(self, rng: np.random.Generator) -> IconGrid:
        cells = self.side**2
        names = tuple(self.known[i] for i in rng.permutation(len(self.known))[:cells].tolist())
        colours = tuple(rng.integers(len(COLOURS), size=cells).tolist())
        return IconGrid(names, colours, int(rng.integers(cells)), self.kinds[int(rng.integers(len(self.kinds)))])

    def split_key(self, problem: IconGrid) -> str:
        return repr(problem.names)

    def write_prompt(self, problem: IconGrid, key: str) -> Prompt:
        name, number = problem.names[problem.cell], str(problem.cell + 1)
        parts = (self.find, name) if problem.kind == "find" else (self.ask, number)
        return Prompt(
            key,
            ask_about_images(parts[0].replace("{}", parts[1])),
            images=(self._render(problem),),
            answer=number if problem.kind == "find" else name,
            info={"kind": problem.kind, "names": problem.names},
        )

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        return verify(answer, prompt.answer, self._words(prompt.info["kind"]))

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        words = self._words(prompt.info["kind"])
        return self.write_answer(words[int(rng.integers(len(words)))])

    def demonstrate(self, index: int) -> str:
        problem = self.problem(index)
        return self.write_answer(str(problem.cell + 1) if problem.kind == "find" else problem.names[problem.cell])

    def _words(self, kind: str) -> tuple[str, ...]:
        return self.known if kind == "name" else tuple(str(n + 1) for n in range(self.side**2))

    def _render(self, grid: IconGrid) -> np.ndarray:
        image = np.full((self.size, self.size, 3), 255, np.uint8)
        step = self.size // self.side
        for cell, (name, colour) in enumerate(zip(grid.names, grid.colours)):
            y, x = (step * place for place in divmod(cell, self.side))
            ink = draw_icon(name, step)[..., None] / 255
            image[y : y + step, x : x + step] = np.round(255 * (1 - ink) + ink * COLOURS[colour])
        return image


def verify(text: str, answer: str, words: Sequence[str]) -> dict[str, float]:
    """exact: 1 if the final line is the answer; format: 1 if it is one of the possible answers."""
    final = final_line(text)
    return {"exact": float(final == answer), "format": float(final in words)}
