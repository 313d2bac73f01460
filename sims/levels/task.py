"""LevelTask: training episodes at any level, held-out episodes on a grid of levels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mmrl.core.errors import check_at_least
from mmrl.core.rng import derive_seed
from mmrl.core.types import Prompt
from sims.levels.space import LevelSpace
from sims.task import SimTask


@dataclass(frozen=True)
class LevelTask(SimTask):
    """Initial states of a simulator with levels; `info["level"]` of a prompt has the numbers by parameter.

    The first `count` training problems are uniform levels. `level_index` numbers every other level, for curricula that
    choose levels. The held-out problems are `starts` initial states at each level of a grid, `grid` cell centres per
    parameter. Seeds of the two splits are disjoint.

    Args:
        grid: held-out levels per parameter.
        starts: initial states of each held-out level.
    """

    grid: int = 10
    starts: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(1, "task", grid=self.grid, starts=self.starts)
        if not isinstance(getattr(self.sim, "level_space", None), LevelSpace):
            raise ValueError(
                f"task=levels needs a simulator with levels, and sim {self.sim.name!r} has none: take sim=levels"
            )

    @property
    def level_bounds(self) -> Mapping[str, tuple[float, float]]:
        """Lower and upper bound of each parameter of a level."""
        return self._space.bounds

    @property
    def _space(self) -> LevelSpace:
        return self.sim.level_space  # type: ignore[attr-defined]

    def level_index(self, level: Mapping[str, float], start: int) -> int:
        """Return the index of the training problem with this level; `start` chooses the initial state."""
        return self.count + self._space.encode(level, start)

    def __len__(self) -> int:
        return self.count if self.split == "train" else self.starts * self.grid ** len(self.level_bounds)

    def __getitem__(self, index: int) -> Prompt:
        if self.split != "train":
            if not 0 <= index < len(self):
                raise IndexError(f"task {self.name!r} has {len(self)} held-out problems, asked for {index}")
            start, place = divmod(index, self.grid ** len(self.level_bounds))
            code = self._space.encode(self._space.grid(self.grid, place), derive_seed(self.name, self.seed, start))
        elif index < self.count:
            return self._with_level(super().__getitem__(index))
        else:
            code = index - self.count
        seed = code << 1 | (self.split != "train")
        info = {"seed": seed, "task": self.sim.task_of(seed)}
        return self._with_level(Prompt(key=f"{self.name}/{self.split}/{index}", info=info))

    def _with_level(self, prompt: Prompt) -> Prompt:
        prompt.info["level"] = self._space.decode(prompt.info["seed"])
        return prompt
