"""Tabletop tasks with domain randomisation: training and held-out states draw from domains of their own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mmrl.core.rng import derive_rng
from sims.render import Look
from sims.tabletop.domains import Domain
from sims.tabletop.suite import Suite
from sims.tabletop.task import Start
from sims.tabletop.vector import TabletopVectorEnv
from sims.task import split_of


@dataclass(frozen=True)
class RandomisedTabletop(Suite):
    """Tasks of the tabletop whose environments differ in looks, camera poses, masses, friction and gains.

    Training states draw from the domain `train`. Every held-out state belongs to one of the domains `held_out`, which
    its seed selects, and its task is called <task>_<domain>, so that an evaluation reports each domain. Layout,
    instruction and task of a state are those of `Suite`, whatever the domains are.

    Args:
        train: domain of the training states; None: the scene as it is.
        held_out: domains of the held-out states by name; an empty domain is the scene as it is. None: the domain of the
            training states, and tasks keep their names.
    """

    train: Domain | None = None
    held_out: Mapping[str, Domain | None] | None = None
    name = "tabletop-randomised"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.appearance is not None:
            raise ValueError("sim.appearance and domains both say how environments look: set sim.train, sim.held_out")
        object.__setattr__(self, "train", _read_domain("train", self.train))
        if self.held_out is not None:
            if not self.held_out:
                raise ValueError("sim.held_out must have at least one domain, such as {nominal: {}}, or be null")
            domains = {str(name): _read_domain(f"held_out.{name}", each) for name, each in self.held_out.items()}
            object.__setattr__(self, "held_out", domains)

    def domain_of(self, seed: int) -> tuple[str, Domain]:
        """The domain that an initial state belongs to, and its name; "" where there is one for all."""
        train = self.train or Domain()
        if split_of(seed) == "train" or self.held_out is None:
            return "", train
        names = list(self.held_out)
        name = names[int(derive_rng("domain", seed).integers(len(names)))]
        return name, self.held_out[name] or Domain()

    def task_of(self, seed: int) -> str:
        name, _ = self.domain_of(seed)
        task = super().task_of(seed)
        return f"{task}_{name}" if name else task

    def look(self, seed: int) -> Look:
        """Draw the look of the environment with this seed."""
        return self.domain_of(seed)[1].look(seed, self.parts[self.part_of(seed)].task.things)

    def start(self, seed: int) -> tuple[int, Start]:
        part, start = super().start(seed)
        _, domain = self.domain_of(seed)
        look = self.look(seed) if domain.varies_look else None
        return part, replace(start, dynamics=domain.dynamics(seed, start.dynamics), appearance=look)

    def make(self, num_envs: int) -> TabletopVectorEnv:
        domains = [self.train, *(self.held_out or {}).values()]
        varied = any(domain is not None and domain.varies_dynamics for domain in domains)
        # factors above 1 make room for the dynamics of each environment; their values come from `start`
        maker = replace(self, dynamics=(2.0, 2.0, 2.0)) if varied else self
        env = Suite.make(maker, num_envs)
        env.starts, env.appearance = self.start, self  # type: ignore[assignment]
        return env

    def contract(self) -> dict[str, Any]:
        # one entry each, which `accept=held_out` names
        train = json.dumps((self.train or Domain()).contract())
        domains = {name: (domain or Domain()).contract() for name, domain in (self.held_out or {}).items()}
        held_out = None if self.held_out is None else json.dumps(domains)
        return {**super().contract(), "train": train, "held_out": held_out}


def _read_domain(key: str, value: Any) -> Domain | None:
    """A domain as a config writes it: a mapping of ranges, or null."""
    if not isinstance(value, Mapping):
        return value
    try:
        return Domain(**value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"sim.{key}: {error}") from error
