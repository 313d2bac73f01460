"""Curricula over levels: points of a box of parameters, of which each episode has one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from mmrl.core.errors import ConfigError
from mmrl.core.rng import derive_rng
from mmrl.core.types import Context, Episode, Task
from mmrl.curricula.base import Curriculum

LEVEL = "level/"
"""Before the parameter's name in the scores of an episode with a level."""


@runtime_checkable
class LeveledTask(Protocol):
    """A task with a problem at every level of a box."""

    level_bounds: Mapping[str, tuple[float, float]]  # lower and upper bound by parameter

    def level_index(self, level: Mapping[str, float], start: int) -> int:
        """Return the index of the problem with this level; `start` chooses among its initial states."""


class LevelCurriculum(Curriculum):
    """Base class of curricula that draw levels; one of D parameters is a point of the unit cube for them.

    A group whose episodes ended, without an error, is one observation: its level and its mean return. Segments that
    only the end of an iteration cut are none.

    Args:
        score_name: what is learned about; "return": the sum of the rewards of the whole episode.
    """

    def __init__(self, score_name: str = "return"):
        self.score_name = score_name
        self.drawn = 0  # levels so far
        self._bounds: dict[str, tuple[float, float]] = {}

    @abstractmethod
    def draw(self, dims: int, rng: np.random.Generator) -> np.ndarray:
        """Draw a level in the unit cube, [dims]."""

    def learn(self, level: np.ndarray, value: float) -> None:
        """Learn from an episode at a level of the unit cube, [D], with this score."""

    def select(self, count: int, ctx: Context) -> list[int]:
        task = find_levels(ctx.task)
        self._bounds = dict(task.level_bounds)
        low, high = np.array(list(self._bounds.values())).T
        indices = []
        for number in range(self.drawn, self.drawn + count):
            rng = derive_rng("levels", ctx.seed, number)
            point = np.clip(self.draw(len(low), rng), 0.0, 1.0)
            # rounding may exceed a bound by the last bit
            values = np.clip(low + point * (high - low), low, high)
            level = dict(zip(self._bounds, values.tolist()))
            indices.append(task.level_index(level, int(rng.integers(2**31))))
        self.drawn += count
        return indices

    def observe(self, groups: Sequence[Sequence[Episode]]) -> None:
        # several processes hand over their groups one after the other; their numbers have the order of one process
        for group in sorted(groups, key=lambda group: group[0].group):
            ended = [episode for episode in group if episode.ended in ("done", "time")]
            if ended:
                value = sum(self._score(episode) for episode in ended) / len(ended)
                self.learn(self._point(ended[0]), value)

    def _score(self, episode: Episode) -> float:
        # a segment's own return is that of its last piece; "episode_return" counts the pieces before it too
        name = "episode_return" if self.score_name == "return" and "episode_return" in episode.scores else None
        name = name or self.score_name
        if name not in episode.scores:
            raise ConfigError(
                f"curriculum.score_name={name!r} is no score of {episode.prompt.key!r}, which has "
                f"{sorted(episode.scores)}; name one of them, or return"
            )
        return episode.scores[name]

    def _point(self, episode: Episode) -> np.ndarray:
        missing = [name for name in self._bounds if LEVEL + name not in episode.scores]
        if missing:
            raise ConfigError(
                f"the episode {episode.prompt.key!r} reports no level: scores {[LEVEL + n for n in missing]} are "
                "missing; take sim=levels, whose environments report them"
            )
        pairs = self._bounds.items()
        return np.array([(episode.scores[LEVEL + name] - low) / (high - low) for name, (low, high) in pairs])

    def state_dict(self) -> dict[str, Any]:
        return {"drawn": self.drawn}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.drawn = state["drawn"]


def find_levels(task: Task) -> LeveledTask:
    """Return the task as one with levels.

    Raises:
        ConfigError: it has none.
    """
    if not isinstance(task, LeveledTask):
        raise ConfigError(
            f"the curriculum chooses levels, and task {task.name!r} has none: take task=levels sim=levels sim.id=NAME"
        )
    return task


class UniformLevels(LevelCurriculum):
    """Draws levels uniformly from the box: domain randomisation.

    Source: Domain Randomization for Transferring Deep Neural Networks from Simulation to the Real World, 2017,
    arXiv:1703.06907.
    """

    def draw(self, dims: int, rng: np.random.Generator) -> np.ndarray:
        return rng.random(dims)
