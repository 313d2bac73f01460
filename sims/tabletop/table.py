"""One task and the physics of its environments, with the memory of the task's rules."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from sims.render import Renderer
from sims.tabletop.task import Start, TabletopState, TabletopTask
from sims.tabletop.worlds import TabletopPhysics


class Present(TabletopState):
    """Current state of some environments of a table, gathered lazily.

    Args:
        table: of the environments.
        rows: which of them.
    """

    def __init__(self, table: TabletopBatch, rows: np.ndarray | slice):
        self.__dict__.update(_table=table, _physics=table.physics, _rows=rows)

    tip = cached_property(lambda self: self._physics.tip[self._rows])
    gap = cached_property(lambda self: self._physics.gap[self._rows])
    objects = cached_property(lambda self: self._physics.objects[self._rows])
    turns = cached_property(lambda self: self._physics.turns[self._rows])
    travel = cached_property(lambda self: self._physics.travel[self._rows])
    origin = cached_property(lambda self: self._table.origin[self._rows])
    named = cached_property(lambda self: self._table.named[self._rows])
    memory = cached_property(lambda self: self._table.memory[self._rows])

    def is_named(self, *places: int) -> np.ndarray:
        return self._table.is_named(places)[self._rows]  # type: ignore[attr-defined]


class TabletopBatch:
    """The rules of a task and the physics of n environments; every array has a row per environment."""

    def __init__(self, task: TabletopTask, physics: TabletopPhysics, renderer: Renderer, max_decisions: int):
        self.task, self.physics, self.renderer, self.max_decisions = task, physics, renderer, max_decisions
        n = physics.batch.nsim
        self.origin = np.zeros((n, len(physics.things), 3))
        self.memory = np.zeros((n, task.memory))
        self.named = np.zeros((n, 0), np.int64)
        self._is_named: dict[tuple[int, ...], np.ndarray] = {}

    def begin(self, ids: np.ndarray, starts: Sequence[Start]) -> None:
        """Set environments to given initial states."""
        if not len(ids):
            return
        self.physics.place(ids, starts)
        targets = np.array([start.named for start in starts], np.int64)
        if self.named.shape[1] != targets.shape[1]:
            self.named = np.zeros((len(self.origin), targets.shape[1]), np.int64)
        self.named[ids] = targets
        self._is_named.clear()
        self.origin[ids] = self.physics.objects[ids]
        self.memory[ids] = 0

    def state(self, ids: np.ndarray) -> TabletopState:
        """Current state of some environments, valid until they are stepped."""
        # usually all of them: then nothing is gathered
        return Present(self, slice(None) if len(ids) == len(self.origin) else ids)

    def is_named(self, places: tuple[int, ...]) -> np.ndarray:
        """`TabletopState.is_named` of all environments, which only a new start changes: not to be written to."""
        if places not in self._is_named:
            self._is_named[places] = TabletopState.is_named(Present(self, slice(None)), *places)
        return self._is_named[places]

    def judge(self, ids: np.ndarray) -> dict[str, np.ndarray]:
        """Events of these environments after a control step, bool [k] each; updates the memory."""
        state = self.state(ids)
        if self.task.memory:
            self.memory[ids] = self.task.remember(state)
            state = self.state(ids)
        return self.task.judge(state)

    def measure(self, ids: np.ndarray) -> dict[str, np.ndarray]:
        """Dense terms of these environments, float [k] each."""
        return self.task.measure(self.state(ids))

    def state_dict(self) -> dict[str, np.ndarray]:
        state = {name: getattr(self, name).copy() for name in ("origin", "memory", "named")}
        return {**state, **self.physics.state_dict()}

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        self.origin, self.memory, self.named = (state[name].copy() for name in ("origin", "memory", "named"))
        self._is_named.clear()
        self.physics.load_state_dict(state)
