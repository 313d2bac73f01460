"""The simulator as recipes name it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import mujoco
import numpy as np

from mmrl.types import Sim
from sims.render import make_renderer
from sims.render.base import resolve
from sims.tabletop.arm import STEP_M
from sims.tabletop.demos import Demo, label, play
from sims.tabletop.reach import APART_M, ReachTask
from sims.tabletop.scene import CAMERAS, COLOURS, CONTROL_HZ, scene_digest
from sims.tabletop.vector import TabletopVectorEnv
from sims.tabletop.worlds import Worlds

_DEMO_RADIUS_M = 0.04  # demonstrations go on until 4 cm: cloning then learns to arrive, not to brush the ball
_AT_ONCE = 256


@dataclass(frozen=True)
class Reach(Sim):
    """A seven-joint arm over a table of coloured cubes; the instruction names one; touching another one fails.

    Args:
        colours: one cube each, at least two.
        chunk: control steps (20 Hz) per decision, executed open loop.
        max_decisions: an episode is cut after so many decisions.
        image_size: pixels a side of the policy's camera.
        renderer: "ray" needs the mujoco wheel only; "egl" and "osmesa" need GL libraries; "auto" takes what draws.
        threads: that step and draw the worlds; 0 takes all CPUs. Results do not depend on it.
        templates: of the instruction; "{colour}" stands for the named cube's colour.
        radius_m: of the ball above the cube that counts as reached, metres.
    """

    colours: tuple[str, ...] = ("red", "green", "blue")
    chunk: int = 5
    max_decisions: int = 4
    image_size: int = 64
    renderer: Literal["auto", "ray", "egl", "osmesa"] = "ray"
    threads: int = 0
    templates: tuple[str, ...] = ("reach the {colour} cube",)
    radius_m: float = 0.05
    name = "tabletop-reach"

    def __post_init__(self) -> None:
        unknown = [colour for colour in self.colours if colour not in COLOURS]
        if unknown:
            raise ValueError(f"sim.colours: unknown {unknown}; known are {sorted(COLOURS)}")
        if len(set(self.colours)) != len(self.colours) or len(self.colours) < 2:
            raise ValueError(f"sim.colours must be at least two different colours, got {list(self.colours)}")
        if not self.templates or any("{colour}" not in template for template in self.templates):
            raise ValueError(f"every one of sim.templates must hold '{{colour}}', got {list(self.templates)}")
        if not 0 < self.radius_m < APART_M / 2:
            raise ValueError(f"sim.radius_m must be in (0, {APART_M / 2}): two balls may not overlap")
        for name in ("chunk", "max_decisions", "image_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"sim.{name} must be at least 1, got {getattr(self, name)}")

    @property
    def renderer_name(self) -> str:
        """The back end that draws here: "auto" resolved."""
        return resolve(self.renderer)

    @property
    def task(self) -> ReachTask:
        """The rules of the episode."""
        return ReachTask(tuple(self.colours), tuple(self.templates), self.radius_m)

    def make(self, num_envs: int) -> TabletopVectorEnv:
        task = self.task
        worlds = Worlds(task.things, num_envs, self.threads)
        renderer = make_renderer(self.renderer, worlds.model, CAMERAS)
        return TabletopVectorEnv(task, worlds, renderer, self.image_size, self.chunk, self.max_decisions)

    def sizes(self) -> dict[str, Any]:
        return {"action_dims": 3, "chunk": self.chunk, "proprio_dims": 13}

    def contract(self) -> dict[str, Any]:
        """What must be equal wherever data, checkpoints and results of this simulator meet."""
        return {
            "sim": self.name,
            "scene": scene_digest(self.task.things),
            "renderer": self.renderer_name,
            "image_size": self.image_size,
            "colours": list(self.colours),
            "templates": list(self.templates),
            "chunk": self.chunk,
            "max_decisions": self.max_decisions,
            "action_scale_m": STEP_M,
            "control_hz": CONTROL_HZ,
            "radius_m": self.radius_m,
            "mujoco": mujoco.__version__,
        }

    def demonstrate(self, seeds: Sequence[int], noise: float = 0.3) -> list[Demo]:
        """The expert from the initial states of `seeds`: per decision (raw observation, clean chunk [chunk, 3]).

        Args:
            seeds: of the initial states.
            noise: standard deviation of what is added to the executed actions, in actions.
        """
        # a noisy hand may need longer than the policy is given
        teacher = replace(self, radius_m=min(_DEMO_RADIUS_M, self.radius_m), max_decisions=3 * self.max_decisions)
        demos: list[Demo] = []
        for part in _parts(seeds):
            env = teacher.make(len(part))
            demos += play(env, part, noise)
            env.close()
        return demos

    def scenes(self, seeds: Sequence[int], spread: float = 0.3) -> dict[str, Any]:
        """Labelled pictures for "point at the named object", one per seed; see `sims.tabletop.demos.label`.

        Args:
            seeds: of the scenes.
            spread: how far each joint of the arm may stand from its start, rad.
        """
        parts = []
        for part in _parts(seeds):
            env = self.make(len(part))
            parts.append(label(env, part, spread))
            env.close()
        joined = {name: np.concatenate([p[name] for p in parts]) for name in parts[0] if name != "instruction"}
        return {**joined, "instruction": [text for p in parts for text in p["instruction"]]}


def _parts(seeds: Sequence[int]) -> list[list[int]]:
    if not len(seeds):
        raise ValueError("no seeds: ask for at least one initial state")
    return [list(seeds[i : i + _AT_ONCE]) for i in range(0, len(seeds), _AT_ONCE)]
