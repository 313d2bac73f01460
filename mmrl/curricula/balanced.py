"""Batches with as many problems of each task of a mixture."""

from __future__ import annotations

from typing import Any

from mmrl.core.rng import derive_rng
from mmrl.core.types import Context, Prompt
from mmrl.curricula.base import Curriculum


def find_task(prompt: Prompt, info_key: str) -> str:
    """Return the name of a prompt's task, an entry of its info."""
    if info_key not in prompt.info:
        raise ValueError(
            f"{prompt.key!r} has no info {info_key!r}, the name of its task; use task=mixture, or set info_key"
        )
    return str(prompt.info[info_key])


class BalancedTasks(Curriculum):
    """Select the same number of problems of each task, in seeded permutations of each task's problems.

    Where an iteration begins in one permutation and ends in the next, it may get a problem twice. Source:
    QwenLong-L1.5, 2025, section 4.2, arXiv:2512.12967.

    Args:
        info_key: entry of a prompt's `info` that names its task.
    """

    def __init__(self, info_key: str = "task"):
        self.info_key = info_key
        self.drawn = 0  # problems of each task so far
        self._problems: dict[str, list[int]] = {}

    def select(self, count: int, ctx: Context) -> list[int]:
        if not self._problems:
            self._problems = self._sort_problems(ctx)
        share, rest = divmod(count, len(self._problems))
        if rest:
            raise ValueError(
                f"the curriculum balances {len(self._problems)} tasks, {sorted(self._problems)}, and is asked for "
                f"{count} problems; set data.num_prompts to a multiple of {len(self._problems)}"
            )
        places = range(self.drawn, self.drawn + share)
        self.drawn += share
        # task by task: processes take the prompts in turn, and so get as many of each task
        return [self._find(name, place, ctx.seed) for name in self._problems for place in places]

    def _sort_problems(self, ctx: Context) -> dict[str, list[int]]:
        by_task: dict[str, list[int]] = {}
        for index in range(len(ctx.task)):
            by_task.setdefault(find_task(ctx.task[index], self.info_key), []).append(index)
        return dict(sorted(by_task.items()))

    def _find(self, name: str, place: int, seed: int) -> int:
        problems = self._problems[name]
        passes, position = divmod(place, len(problems))
        order = derive_rng("balanced_tasks", seed, name, passes).permutation(len(problems))
        return problems[int(order[position])]

    def state_dict(self) -> dict[str, Any]:
        return {"drawn": self.drawn}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.drawn = state["drawn"]
