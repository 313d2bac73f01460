"""One task with its worlds: what the rules see of them, and what is remembered from the start on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from sims.render import Renderer
from sims.tabletop.task import Start, State, TabletopTask
from sims.tabletop.worlds import Worlds


class Present(State):
    """The state of some worlds at a table as it is now; only what a rule asks for is gathered.

    Args:
        table: of the worlds.
        rows: which of them.
    """

    def __init__(self, table: Table, rows: np.ndarray | slice):
        self.__dict__.update(_table=table, _worlds=table.worlds, _rows=rows)

    tip = cached_property(lambda self: self._worlds.tip[self._rows])
    gap = cached_property(lambda self: self._worlds.gap[self._rows])
    objects = cached_property(lambda self: self._worlds.objects[self._rows])
    turns = cached_property(lambda self: self._worlds.turns[self._rows])
    travel = cached_property(lambda self: self._worlds.travel[self._rows])
    origin = cached_property(lambda self: self._table.origin[self._rows])
    named = cached_property(lambda self: self._table.named[self._rows])
    memory = cached_property(lambda self: self._table.memory[self._rows])

    def is_named(self, *places: int) -> np.ndarray:
        return self._table.is_named(places)[self._rows]  # type: ignore[attr-defined]


class Table:
    """The rules of a task and n worlds that obey them; every array has a row per world."""

    def __init__(self, task: TabletopTask, worlds: Worlds, renderer: Renderer, max_decisions: int):
        self.task, self.worlds, self.renderer, self.max_decisions = task, worlds, renderer, max_decisions
        n = worlds.batch.nsim
        self.origin = np.zeros((n, len(worlds.things), 3))
        self.memory = np.zeros((n, task.memory))
        self.named = np.zeros((n, 0), np.int64)
        self._is_named: dict[tuple[int, ...], np.ndarray] = {}

    def begin(self, ids: np.ndarray, starts: Sequence[Start]) -> None:
        """Put worlds into given initial states."""
        if not len(ids):
            return
        self.worlds.place(ids, starts)
        named = np.array([start.named for start in starts], np.int64)
        if self.named.shape[1] != named.shape[1]:
            self.named = np.zeros((len(self.origin), named.shape[1]), np.int64)
        self.named[ids] = named
        self._is_named.clear()
        self.origin[ids] = self.worlds.objects[ids]
        self.memory[ids] = 0

    def state(self, ids: np.ndarray) -> State:
        """What the rules see of some worlds, until these move on."""
        # usually all of them: then nothing is gathered
        return Present(self, slice(None) if len(ids) == len(self.origin) else ids)

    def is_named(self, places: tuple[int, ...]) -> np.ndarray:
        """`State.is_named` of all worlds, which only a new start changes: not to be written to."""
        if places not in self._is_named:
            self._is_named[places] = State.is_named(Present(self, slice(None)), *places)
        return self._is_named[places]

    def judge(self, ids: np.ndarray) -> dict[str, np.ndarray]:
        """The events of these worlds after a control step, bool [k] each; what is remembered moves on."""
        state = self.state(ids)
        if self.task.memory:
            self.memory[ids] = self.task.remember(state)
            state = self.state(ids)
        return self.task.judge(state)

    def measure(self, ids: np.ndarray) -> dict[str, np.ndarray]:
        """The dense terms of these worlds, float [k] each."""
        return self.task.measure(self.state(ids))

    def state_dict(self) -> dict[str, np.ndarray]:
        state = {name: getattr(self, name).copy() for name in ("origin", "memory", "named")}
        return {**state, **self.worlds.state_dict()}

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        self.origin, self.memory, self.named = (state[name].copy() for name in ("origin", "memory", "named"))
        self._is_named.clear()
        self.worlds.load_state_dict(state)
