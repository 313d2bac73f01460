"""Multi-task simulator: the seed of an initial state selects its task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

from sims.tabletop.sim import SingleTaskSim, Tabletop
from sims.tabletop.sims import OpenDrawer, PickPlace, PressButtons, Push, Reach, Stack

PARTS: dict[str, type[SingleTaskSim]] = {
    "reach": Reach,
    "push": Push,
    "pick_place": PickPlace,
    "stack": Stack,
    "drawer": OpenDrawer,
    "buttons": PressButtons,
}


@dataclass(frozen=True)
class Suite(Tabletop):
    """Environments of several tasks; each behaves as in the simulator of its task alone.

    Images, actions and proprioception have equal shapes: where one task needs the gripper, all have its dimension,
    which has no effect in the others. What the tasks share (level, wording, ...) is set here, once.

    Args:
        tasks: of reach, push, pick_place, stack, drawer, buttons.
        options: by task the options that only it has, for example {"push": {"distance_m": [0.1, 0.12]}}.
    """

    tasks: tuple[str, ...] = ("reach", "push", "drawer", "buttons")
    options: Mapping[str, Mapping[str, Any]] | None = None
    name = "tabletop"

    def __post_init__(self) -> None:
        if unknown := [task for task in self.tasks if task not in PARTS]:
            raise ValueError(f"sim.tasks: unknown {unknown}; known are {sorted(PARTS)}")
        if not self.tasks or len(set(self.tasks)) != len(self.tasks):
            raise ValueError(f"sim.tasks must name at least one task, none twice, got {list(self.tasks)}")
        if unknown := sorted(set(self.options or {}) - set(self.tasks)):
            raise ValueError(f"sim.options: {unknown} are not among sim.tasks={list(self.tasks)}")
        if self.templates is not None:
            raise ValueError("sim.templates fits one task: set sim.options.<task>.templates")
        super().__post_init__()

    @cached_property
    def parts(self) -> tuple[SingleTaskSim, ...]:  # type: ignore[override]
        shared = {field.name: getattr(self, field.name) for field in fields(Tabletop)}
        # a dense term may be one task's only: it is checked here, over all of them
        shared |= {"dense_reward_weights": None}
        simulators = []
        for task in self.tasks:
            options = dict((self.options or {}).get(task, {}))
            allowed = {field.name for field in fields(PARTS[task])} - {field.name for field in fields(Tabletop)}
            allowed |= {"templates", "max_decisions"}
            if unknown := sorted(set(options) - allowed):
                raise ValueError(f"sim.options.{task}: unknown {unknown}; it has {sorted(allowed)}")
            simulators.append(PARTS[task](**{**shared, **options}))
        return tuple(simulators)

    def stepwise(self) -> Suite:
        limits = [{"max_decisions": part.limit * self.chunk} for part in self.parts]
        options = {task: {**(self.options or {}).get(task, {}), **limit} for task, limit in zip(self.tasks, limits)}
        return replace(self, chunk=1, options=options)
