"""Stages of training: the problems of some kinds, then those of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mmrl.core.errors import check_at_least
from mmrl.core.rng import derive_rng
from mmrl.core.types import Context
from mmrl.curricula.balanced import find_task
from mmrl.curricula.base import Curriculum


class Stages(Curriculum):
    """Select problems of the kinds of the current stage, in seeded permutations of the task.

    Where an iteration begins in one permutation and ends in the next, it may get a problem twice. Source: RewardMap,
    2025, stages of training from yes/no questions to routes, arXiv:2510.02240.

    Args:
        stages: the kinds of each stage, easy ones first.
        iterations: of each stage; the last stage lasts as long as the run.
        info_key: entry of a prompt's `info` that names its kind.
    """

    def __init__(self, stages: Sequence[Sequence[str]], iterations: Sequence[int], info_key: str = "kind"):
        if not stages or not all(stages) or len(iterations) != len(stages):
            raise ValueError(
                f"curriculum: stages needs at least one kind in each stage and iterations a number for each, got "
                f"stages={[list(kinds) for kinds in stages]} and iterations={list(iterations)}"
            )
        for number in iterations:
            check_at_least(1, "curriculum", iterations=number)
        self.stages, self.iterations = [tuple(kinds) for kinds in stages], list(iterations)
        self.info_key = info_key
        self.positions = [0] * len(self.stages)  # in the endless row of permutations of each stage

    def stage(self, iteration: int) -> int:
        """Return the number of the stage, from 0, of an iteration."""
        for number, end in enumerate(self.iterations[:-1]):
            iteration -= end
            if iteration < 0:
                return number
        return len(self.stages) - 1

    def select(self, count: int, ctx: Context) -> list[int]:
        number, size = self.stage(ctx.iteration), len(ctx.task)
        indices: list[int] = []
        skipped = 0  # problems of other kinds in a row
        order, begun = np.arange(0), -1  # a permutation, and its number
        while len(indices) < count:
            passes, place = divmod(self.positions[number], size)
            if passes != begun:
                order, begun = derive_rng("stages", ctx.seed, number, passes).permutation(size), passes
            index = int(order[place])
            self.positions[number] += 1
            if find_task(ctx.task[index], self.info_key) in self.stages[number]:
                indices, skipped = [*indices, index], 0
            elif (skipped := skipped + 1) >= 2 * size:
                raise ValueError(
                    f"curriculum.stages: no problem of task {ctx.task.name!r} has one of {list(self.stages[number])} "
                    f"as its info {self.info_key!r}"
                )
        return indices

    def state_dict(self) -> dict[str, Any]:
        return {"positions": list(self.positions)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.positions = list(state["positions"])
