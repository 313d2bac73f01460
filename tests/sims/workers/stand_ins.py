"""Stands in for simulators under another Python where they are not installed: a hand that moves, in this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

from sims.host.tasks import task_of
from sims.host.vector import GuestVectorEnv
from sims.libero.sim import LiberoSim
from sims.metaworld.sim import MetaWorldSim
from sims.ogbench.sim import OGBenchSim
from sims.ogbench.sizes import SCENES

BENCHMARKS = {
    "MT10": [
        *("reach-v3", "push-v3", "pick-place-v3", "door-open-v3", "drawer-open-v3", "drawer-close-v3"),
        *("button-press-topdown-v3", "peg-insert-side-v3", "window-open-v3", "window-close-v3"),
    ]
}


class Hand(gymnasium.Env):
    """The hand moves by a centimetre per control step; it succeeds 3 cm to the right of its start."""

    metadata = {"render_fps": 80}
    render_mode = None

    def __init__(self, sim: Any):
        self.sim, sizes = sim, sim.sizes()
        self.numbers = sizes["proprio_dims"]
        text = spaces.Text(max_length=60, charset="abcdefghijklmnopqrstuvwxyz ")
        parts: dict[str, Any] = {"proprio": spaces.Box(-9, 9, (self.numbers,), np.float32), "instruction": text}
        if sim.image_size:
            parts["image"] = spaces.Box(0, 255, (sim.image_size, sim.image_size, 3), np.uint8)
        self.observation_space = spaces.Dict(parts)
        self.action_space = spaces.Box(-1, 1, (sim.chunk, sizes["action_dims"]), np.float32)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.task, self.place, self.steps = self.sim.task_of(seed), np.random.default_rng(seed).random(3), 0
        self.goal = self.place[0] + 0.03
        return self._observe(), {"task": self.task}

    def step(self, action: np.ndarray) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        self.place, self.steps = self.place + 0.01 * action[:, :3].sum(axis=0), self.steps + self.sim.chunk
        success = bool(self.place[0] > self.goal)
        info = {"task": self.task, "executed": self.sim.chunk, "scores": {"success": float(success)}}
        return self._observe(), float(success), success, self.steps >= self.sim.max_steps, info

    def _observe(self) -> dict[str, Any]:
        numbers = np.concatenate([self.place, np.zeros(self.numbers - 3)]).astype(np.float32)
        seen = {"proprio": numbers, "instruction": self.task.removesuffix("-v3").replace("-", " ")}
        if self.sim.image_size:
            seen["image"] = np.full(self.observation_space["image"].shape, int(255 * self.place[0]) % 256, np.uint8)
        return seen


class StandIn:
    """What these simulators do without another Python to ask; mixed into one of them."""

    naming: ClassVar[str]
    """The name, with options in braces."""

    @property
    def name(self) -> str:
        return self.naming.format(**vars(self))

    def __post_init__(self) -> None:
        """There is none."""

    def contract(self) -> dict[str, Any]:
        return {"sim": self.name, "chunk": self.chunk}

    def stored_states(self, split: str) -> int:
        return 0

    def make(self, num_envs: int) -> GuestVectorEnv:
        return GuestVectorEnv(lambda: Hand(self), num_envs)

    def demonstrate(self, seeds: Sequence[int], noise: float = 0.0) -> list[list[tuple[dict[str, Any], np.ndarray]]]:
        demos = []
        for seed in seeds:
            env = Hand(self)
            seen, over, demo = env.reset(seed=seed)[0], False, []
            while not over:
                chunk = np.ones(env.action_space.shape, np.float32)
                demo.append((seen, chunk))
                seen, _, over, _, _ = env.step(chunk)
            demos.append(demo)
        return demos


@dataclass(frozen=True)
class MetaWorldStandIn(StandIn, MetaWorldSim):
    """The options of Meta-World."""

    naming = "metaworld-{task}"

    def task_of(self, seed: int) -> str:
        return task_of(seed, BENCHMARKS.get(self.task, self.task.split("+")))


@dataclass(frozen=True)
class OGBenchStandIn(StandIn, OGBenchSim):
    """The options of OGBench."""

    naming = "ogbench-{scene}"

    def task_of(self, seed: int) -> str:
        return task_of(seed, SCENES[self.scene].tasks)


@dataclass(frozen=True)
class LiberoStandIn(StandIn, LiberoSim):
    """The options of LIBERO."""

    naming = "libero-{suite}"

    def task_of(self, seed: int) -> str:
        return "pick up the milk and place it in the basket"
