"""Stratified subset of a task: a fixed number of problems per kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmrl.core.types import Context, Task
from mmrl.curricula.base import Curriculum


class StratifiedSubset(Curriculum):
    """Select a fixed set: the first `counts[kind]` problems of each kind in the task's order, repeated in order.

    For demonstrations of several tasks, of which some need more than others.


    Args:
        info_key: entry of a prompt's `info` that names its kind.
        counts: size of the set by kind, at least 1 each; kinds that are not named take no part.
    """

    def __init__(self, info_key: str, counts: Mapping[str, int]):
        if not counts or min(counts.values()) < 1:
            raise ValueError(f"curriculum.counts must name at least one kind, and at least 1 of each, got {counts}")
        self.info_key, self.counts = info_key, dict(counts)
        self._set: list[int] = []  # indices into the task
        self._position = 0

    def select(self, count: int, ctx: Context) -> list[int]:
        if not self._set:
            self._set = self._first_of_each_kind(ctx.task)
        indices = [self._set[(self._position + k) % len(self._set)] for k in range(count)]
        self._position = (self._position + count) % len(self._set)
        return indices

    def _first_of_each_kind(self, task: Task) -> list[int]:
        quota, indices, kinds = dict(self.counts), [], set()
        for index in range(len(task)):
            kind = task[index].info.get(self.info_key)
            kinds.add(kind)
            if quota.get(kind):  # type: ignore[arg-type]
                quota[kind] -= 1  # type: ignore[index]
                indices.append(index)
                if not any(quota.values()):
                    return indices
        missing = {kind: number for kind, number in quota.items() if number}
        raise ValueError(
            f"curriculum.counts asks for {missing} more problems than task {task.name!r} ({task.split}) has; its "
            f"values of info_key={self.info_key!r} are {sorted(map(str, kinds))}"
        )

    def state_dict(self) -> dict[str, Any]:
        return {"position": self._position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._position = state["position"] % sum(self.counts.values())
