"""StoredStateTask: the stored initial states of a simulator as a task, each of them once."""

from __future__ import annotations

from dataclasses import dataclass

from mmrl.core.types import Prompt
from sims.host.states import seed_of_state
from sims.task import SimTask


@dataclass(frozen=True)
class StoredStateTask(SimTask):
    """The stored initial states of a split, in the simulator's order; `count` states at most.

    The simulator says with `stored_states(split)` how many there are, and makes the state `sims.host.states.state_of`
    its seed. One without stored states poses generated states as in `SimTask`. `seed` does not change stored states.
    """

    def __len__(self) -> int:
        return min(self.count, self._count_states() or self.count)

    def __getitem__(self, index: int) -> Prompt:
        if not self._count_states():
            return super().__getitem__(index)
        if not 0 <= index < len(self):
            raise IndexError(f"task {self.name!r} has {len(self)} stored initial states, asked for {index}")
        seed = seed_of_state(self.split, index)
        info = {"seed": seed, "task": self.sim.task_of(seed)}
        return Prompt(key=f"{self.name}/{self.split}/{index}", info=info)

    def _count_states(self) -> int:
        return self.sim.stored_states(self.split)  # type: ignore[attr-defined]
