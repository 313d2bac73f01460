"""Held-out mazes: levels that can be solved, with a long way to the goal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from mmrl.core.errors import check_at_least, check_interval
from mmrl.core.rng import derive_rng
from mmrl.core.types import Prompt
from sims.levels.task import LevelTask
from sims.mazes.maze import CELLS, PARAMETERS, path_length, read_level, write_level


@dataclass(frozen=True)
class MazeTask(LevelTask):
    """Training at any level of BlockMaze; the held-out levels are uniform ones whose shortest path is long.

    Held-out initial states have an even number, so that of two students the first one is evaluated
    (`StudentLevelSim`).

    Args:
        mazes: held-out levels.
        least_path: moves of the shortest path of a held-out level, 1 to 8.
    """

    mazes: int = 256
    least_path: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(1, "task", mazes=self.mazes)
        check_interval("task", "[1, 8]", least_path=self.least_path)
        if set(self.level_bounds) != set(PARAMETERS):
            raise ValueError(
                f"task=block_mazes has held-out levels of BlockMaze alone; this sim's are {[*self.level_bounds]}"
            )

    def __len__(self) -> int:
        return self.count if self.split == "train" else self.mazes

    def __getitem__(self, index: int) -> Prompt:
        if self.split == "train":
            return super().__getitem__(index)
        if not 0 <= index < self.mazes:
            raise IndexError(f"task {self.name!r} has {self.mazes} held-out problems, asked for {index}")
        code = self.sim.level_space.encode(self._held_out[index], 0)  # type: ignore[attr-defined]
        seed = code << 1 | 1
        prompt = Prompt(key=f"{self.name}/held_out/{index}", info={"seed": seed, "task": self.sim.task_of(seed)})
        return self._with_level(prompt)

    @cached_property
    def _held_out(self) -> list[Mapping[str, float]]:
        rng, levels = derive_rng(self.name, "held_out", self.seed), []
        while len(levels) < self.mazes:
            *blocks, goal, agent = rng.integers(CELLS, size=len(PARAMETERS)).tolist()
            level = write_level(blocks, goal, agent)
            length = path_length(*read_level(level))
            if length is not None and length >= self.least_path:
                levels.append(level)
        return levels
