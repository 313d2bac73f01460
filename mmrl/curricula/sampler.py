"""Curricula with a fixed order: shuffled, or the first problems of a task."""

from __future__ import annotations

from typing import Any

from mmrl.core.errors import check_at_least
from mmrl.core.rng import derive_rng
from mmrl.core.types import Context
from mmrl.curricula.base import Curriculum


class Shuffled(Curriculum):
    """Select problems in seeded permutations of the task, each problem once per permutation.

    An iteration that begins in one pass and ends in the next gets no problem twice: those it already has are moved to
    the end of the new pass. Only an iteration that asks for more problems than there are repeats some.
    """

    def __init__(self) -> None:
        self._passes = 0  # permutations begun
        self._order: list[int] = []  # of the running pass
        self._position = 0  # in _order
        self._iteration = -1
        self._drawn: list[int] = []  # in this iteration, refills included

    def select(self, count: int, ctx: Context) -> list[int]:
        if self._order and len(self._order) != len(ctx.task):
            raise ValueError(
                f"the curriculum is walking through {len(self._order)} problems, but task {ctx.task.name!r} has "
                f"{len(ctx.task)}; resume with the task that the run began with"
            )
        if ctx.iteration != self._iteration:
            self._iteration, self._drawn = ctx.iteration, []
        indices: list[int] = []
        while len(indices) < count:
            if self._position == len(self._order):
                self._begin_pass(ctx)
            chunk = self._order[self._position : self._position + count - len(indices)]
            self._position += len(chunk)
            self._drawn += chunk
            indices += chunk
        return indices

    def _begin_pass(self, ctx: Context) -> None:
        if len(ctx.task) == 0:
            raise ValueError(f"task {ctx.task.name!r} has no problems to select")
        order = derive_rng("shuffled", ctx.seed, self._passes).permutation(len(ctx.task)).tolist()
        previous = set(self._drawn)
        self._order = [i for i in order if i not in previous] + [i for i in order if i in previous]
        self._passes, self._position = self._passes + 1, 0

    def state_dict(self) -> dict[str, Any]:
        return {
            "passes": self._passes,
            "order": list(self._order),
            "position": self._position,
            "iteration": self._iteration,
            "drawn": list(self._drawn),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._passes, self._position, self._iteration = state["passes"], state["position"], state["iteration"]
        self._order, self._drawn = list(state["order"]), list(state["drawn"])


class FixedSubset(Curriculum):
    """Select the first `count` problems of the task in order, repeatedly.

    Args:
        count: size of the set; an iteration that asks for exactly that many gets the same ones each time.
    """

    def __init__(self, count: int):
        check_at_least(1, "curriculum", count=count)
        self.count = count
        self._position = 0

    def select(self, count: int, ctx: Context) -> list[int]:
        if self.count > len(ctx.task):
            raise ValueError(
                f"curriculum.count is {self.count}, but task {ctx.task.name!r} ({ctx.task.split}) has only "
                f"{len(ctx.task)} problems"
            )
        indices = [(self._position + k) % self.count for k in range(count)]
        self._position = (self._position + count) % self.count
        return indices

    def state_dict(self) -> dict[str, Any]:
        return {"position": self._position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._position = state["position"] % self.count
