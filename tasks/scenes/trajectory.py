"""Trajectories: waypoints from one described object to another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmrl.core.errors import check_at_least
from mmrl.core.types import Prompt
from mmrl.rewards.boxes import parse_numbers
from tasks.checks import final_line
from tasks.scenes.coordinates import CoordinateTask
from tasks.scenes.frechet import frechet_score
from tasks.scenes.task import SceneProblem, find_target

LONGEST = 16  # waypoints
Waypoint = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Trajectory(CoordinateTask):
    """Waypoints "x y; x y; x y" from the middle of an object to that of another; the expert's are evenly spaced.

    Source: VLA-R1, "Enhancing Reasoning in Vision-Language-Action Models", 2025, arXiv:2510.01623.

    Args:
        waypoints: of the expert, ends included.
    """

    waypoints: int = 3
    distractors: Sequence[int] = (1, 2)
    question: str = "Path from the {} to the {}?"

    name = "scenes_trajectory"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(2, f"task {self.name!r}:", waypoints=self.waypoints)
        if not self.distractors[0] or self.waypoints > LONGEST or self.question.count("{}") != 2:
            raise ValueError(
                f"task {self.name!r}: distractors must be at least [1, 1], since the path ends at one, waypoints at "
                f"most {LONGEST}, and question needs two {{}}; got {list(self.distractors)}, {self.waypoints} and "
                f"{self.question!r}"
            )

    def ask(self, rng: np.random.Generator) -> SceneProblem | None:
        target, kinds = self.draw_kinds(rng, 1)
        goal = kinds[1]
        scene = self.build_scene(rng, kinds)
        if scene is None or sum(self.key(kind) == self.key(goal) for kind in kinds) > 1:
            return None  # the goal's description has to fit one object alone
        ends = [self._middle(thing.box) for thing in (find_target(scene), scene.shapes[1])]
        shares = np.linspace(0, 1, self.waypoints)[:, None]
        points = np.rint(ends[0] * (1 - shares) + ends[1] * shares).astype(int)
        path = tuple((int(x), int(y)) for x, y in points)
        if len(set(path)) < len(path):
            return None
        question = self.question.replace("{}", self.phrase(target), 1).replace("{}", self.phrase(goal), 1)
        return SceneProblem(scene, question, write_path(path), path)

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """frechet: `frechet_score` of the path on the final line; exact: it is the expert's; format: it is a path."""
        path = read_path(final_line(answer), self.limit)
        if path is None:
            return {"exact": 0.0, "frechet": 0.0, "format": 0.0}
        place = [[(x / self.limit, y / self.limit) for x, y in each] for each in (prompt.answer, path)]
        return {"exact": float(path == prompt.answer), "frechet": frechet_score(*place), "format": 1.0}

    def _middle(self, box: Sequence[int]) -> np.ndarray:
        x1, y1, x2, y2 = box
        return np.array([x1 + x2, y1 + y2]) * (self.limit / self.size / 2)


def write_path(path: Sequence[Waypoint]) -> str:
    """Write waypoints as `read_path` reads them."""
    return "; ".join(f"{x} {y}" for x, y in path)


def read_path(text: str, limit: float) -> tuple[Waypoint, ...] | None:
    """Read two or more waypoints of whole numbers from 0 to `limit`, else None."""
    parts = text.split("; ", LONGEST)
    numbers = [parse_numbers(part, 2, limit) for part in parts]
    if not 2 <= len(parts) <= LONGEST or None in numbers:
        return None
    return tuple((each[0], each[1]) for each in numbers if each is not None)
