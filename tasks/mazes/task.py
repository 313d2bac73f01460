"""Image question: which moves lead from the red to the green cell?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmrl.core.types import Prompt
from tasks.checks import check_range
from tasks.generated import GeneratedTask, ask_about_images, ask_user, to_tuples
from tasks.mazes.maze import Maze, count_turns, draw_doors
from tasks.mazes.verify import verify

FORMS = ("image", "text", "both")


@dataclass(frozen=True)
class Mazes(GeneratedTask):
    """Mazes as images, as text, or both; the answer is a path of moves, such as "RRDL". No walls are in both splits.

    Source: Ariadne, "Probing and Extending VLM Reasoning Boundaries", 2025, for the image task by length and turns.

    Args:
        rows: cells from top to bottom.
        columns: cells from left to right.
        lengths: fewest and most moves of the shortest path.
        max_turns: most changes of direction along the shortest path; None for any.
        loops: walls that are opened beside a spanning tree, so that there are several paths.
        form: "image", "text" or "both".
        size: side of the image in pixels.
        question: the user's turn.
    """

    rows: int = 4
    columns: int = 4
    lengths: Sequence[int] = (2, 8)
    max_turns: int | None = None
    loops: int = 0
    form: str = "image"
    size: int = 32
    question: str = "Which moves lead from the red to the green cell? Write U, D, L, R as in RRDL."

    name = "mazes"

    def __post_init__(self) -> None:
        super().__post_init__()
        to_tuples(self, "lengths")
        blocks = 2 * max(self.rows, self.columns) + 1
        if min(self.rows, self.columns) < 1 or self.rows * self.columns < 4:
            raise ValueError(
                f"task {self.name!r}: rows and columns must make at least 4 cells, got {self.rows} x {self.columns}"
            )
        check_range(self.name, "lengths", self.lengths, 1)
        if self.loops < 0 or self.form not in FORMS or (self.max_turns is not None and self.max_turns < 0):
            raise ValueError(
                f"task {self.name!r}: loops and max_turns must not be negative and form one of {', '.join(FORMS)}, "
                f"got {self.loops}, {self.max_turns} and {self.form!r}"
            )
        if self.size < blocks:
            raise ValueError(
                f"task {self.name!r}: {self.rows} x {self.columns} cells need an image of at least {blocks} pixels, "
                f"got size={self.size}"
            )

    def draw(self, rng: np.random.Generator) -> Maze | None:
        doors = draw_doors(rng, self.rows, self.columns, self.loops)
        start = (int(rng.integers(self.rows)), int(rng.integers(self.columns)))
        distances = Maze(self.rows, self.columns, doors, start, start).distances(start)
        fitting = sorted(cell for cell, moves in distances.items() if self.lengths[0] <= moves <= self.lengths[1])
        if not fitting:
            return None
        maze = Maze(self.rows, self.columns, doors, start, fitting[int(rng.integers(len(fitting)))])
        return maze if self.max_turns is None or count_turns(maze.solve()) <= self.max_turns else None

    def split_key(self, problem: Maze) -> str:
        return repr(sorted(problem.doors))

    def write_prompt(self, problem: Maze, key: str) -> Prompt:
        path = problem.solve()
        text = "\n".join([*problem.characters(), self.question])
        question = self.question if self.form == "image" else text
        has_image = self.form != "text"
        return Prompt(
            key,
            ask_about_images(question) if has_image else ask_user(question),
            images=(problem.render(self.size),) if has_image else (),
            answer=path,
            info={"maze": problem, "length": len(path), "turns": count_turns(path)},
        )

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        return verify(answer, prompt.info["maze"], prompt.answer)

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        moves = int(rng.integers(self.lengths[0], self.lengths[1], endpoint=True))
        return self.write_answer("".join("UDLR"[i] for i in rng.integers(4, size=moves)))

    def demonstrate(self, index: int) -> str:
        return self.write_answer(self.problem(index).solve())
