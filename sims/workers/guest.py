"""Simulators under the Python of another environment, with pins of their own."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from gymnasium.vector import VectorEnv

from mmrl.core.types import Sim
from sims.host.states import state_of
from sims.host.tasks import task_of
from sims.workers.process import Program, open_workers
from sims.workers.python import find_python
from sims.workers.sim import check_workers, describe, run_expert
from sims.workers.vector import WorkerVectorEnv


@dataclass(frozen=True)
class GuestSim(Sim):
    """Base class of simulators that run in another Python environment; its fields are the guest's arguments.

    The guest is a class on the other side, which imports neither mmrl nor torch; `sims/host/README.md` says what it
    has to have. Name, sizes, contract and tasks come from there.

    Args:
        python: interpreter of the environment; None: that of `environment`.
        workers: number of processes; fewer where there are fewer environments.
        timeout_s: seconds after which a process that does not answer is killed and started again.
    """

    python: str | None = field(default=None, kw_only=True)
    workers: int = field(default=1, kw_only=True)
    timeout_s: float = field(default=60.0, kw_only=True)

    guest: ClassVar[str]
    """Import path of the guest's class, as the other interpreter finds it."""
    environment: ClassVar[str | None] = None
    """Folder of the virtual environment, in the working directory or beside mmrl."""
    make_target: ClassVar[str | None] = None
    """What makes it."""

    def __post_init__(self) -> None:
        check_workers(self.workers, self.timeout_s)
        self._statement()  # errors of the guest's constructor are those of this one

    def guest_arguments(self) -> dict[str, Any]:
        """Arguments of the guest's class."""
        base_names = {field.name for field in fields(GuestSim)}
        arguments = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in base_names}
        return {name: describe(value) for name, value in arguments.items()}  # plain lists in place of OmegaConf's

    def program(self) -> Program:
        """What the processes run."""
        python = find_python(self.python, self.environment, self.make_target)
        return Program({"_target_": self.guest, **self.guest_arguments()}, python, self.timeout_s)

    def _statement(self) -> Mapping[str, Any]:
        program = self.program()
        return _ask(str(program.python), json.dumps(program.description, sort_keys=True))

    @property
    def name(self) -> str:  # type: ignore[override]
        return self._statement()["name"]

    def make(self, num_envs: int) -> VectorEnv:
        return WorkerVectorEnv(self.program(), num_envs, min(self.workers, num_envs))

    def sizes(self) -> dict[str, Any]:
        stated = self._statement()
        if stated["refusal"] is not None:
            raise ValueError(stated["refusal"])
        return dict(stated["sizes"])

    def contract(self) -> dict[str, Any]:
        return dict(self._statement()["contract"])

    def stored_states(self, split: str) -> int:
        """How many stored initial states a split has; 0 where states are made from their seeds alone."""
        states = self._statement()["states"]
        return len(states[split]) if states else 0

    def task_of(self, seed: int) -> str:
        """The task of an initial state, from the guest's stored states or its tasks."""
        stated = self._statement()
        if stated["states"]:
            return state_of(seed, stated["states"])[0]
        return task_of(seed, stated["tasks"], stated["held_out_tasks"]) if stated["tasks"] else self.name

    def __getattr__(self, name: str) -> Any:
        if name == "expert" and self._statement()["expert"]:
            return run_expert
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")


@functools.cache
def _ask(python: str, description: str) -> Mapping[str, Any]:
    """What a guest states, from a process that is started for the question."""
    with tempfile.TemporaryFile() as memory:
        (worker,), (stated,) = open_workers(Program(json.loads(description), python), 1, memory.fileno())
        worker.close()
    return stated


@dataclass(frozen=True)
class NamedGuest(GuestSim):
    """A guest of your own, by its import path.

    Args:
        path: of the guest's class, such as "walk:Walk"; the other interpreter finds the working directory.
        options: arguments of the class.
    """

    path: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def guest(self) -> str:  # type: ignore[override]
        return self.path

    def guest_arguments(self) -> dict[str, Any]:
        return dict(self.options)
