"""The two sides of a simulator benchmark: the whole environment, and the bare batch and renderer."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from mujoco.batch import Batch

from sims.render import Renderer
from sims.tabletop.vector import TabletopVectorEnv

CAMERA = "front"
_DECISIONS = 24  # that are recorded, and replayed by the bare side


class Whole:
    """An environment with random actions; ended environments are reset at once with new seeds."""

    def __init__(self, env: TabletopVectorEnv):
        self.env, self.steps, self.frames = env, 0, 0
        shape = (64, env.num_envs, env.chunk, env.action_dims)
        self._actions = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
        self._seed, self._turn = env.num_envs, 0
        env.reset(seed=list(range(env.num_envs)))

    def decide(self) -> None:
        """One decision of all environments."""
        env = self.env
        self._turn = (self._turn + 1) % len(self._actions)
        _, _, terminated, truncated, infos = env.step(self._actions[self._turn])
        self.steps += int(infos["executed"].sum())
        self.frames += int((~(terminated | infos["error"])).sum())
        over = terminated | truncated
        if over.any():
            seeds = list(range(self._seed, self._seed + env.num_envs))
            self._seed += env.num_envs
            env.reset(seed=seeds, options={"reset_mask": over})
            self.frames += int(over.sum())


class Bare:
    """`Batch.step` and the renderer alone, over recorded states and controls."""

    def __init__(self, whole: Whole, size: int, threads: int):
        env = whole.env
        self.renderer: Renderer = env.renderer
        self.batch = Batch(env.physics.model, env.num_envs, threads)
        self.substeps = env.physics.substeps
        self.ids, self.size, self.chunk = np.arange(env.num_envs), size, env.chunk
        self.steps = self.frames = self._turn = 0
        ctrl, moved = env.physics.batch.bind("ctrl"), []
        env.step_callback = lambda ids: moved.append(ctrl.copy())
        self._recorded = []
        while len(self._recorded) < _DECISIONS:
            before = env.physics.batch.state.copy()
            moved.clear()
            whole.decide()
            if len(moved) == env.chunk:
                self._recorded.append((before, list(moved)))
        env.step_callback = None
        self._ctrl = self.batch.bind("ctrl")

    def step(self) -> None:
        """The control steps of one decision of all environments."""
        self._turn = (self._turn + 1) % len(self._recorded)
        before, controls = self._recorded[self._turn]
        self.batch.state[:] = before
        for ctrl in controls:
            self._ctrl[:] = ctrl
            self.batch.step(nstep=self.substeps)
        self.steps += len(controls) * len(self.ids)

    def draw(self) -> None:
        """One frame of all environments."""
        self.renderer.frames(self.batch, self.ids, CAMERA, self.size)
        self.frames += len(self.ids)

    def step_and_draw(self) -> None:
        """Minimal cost of a decision: its control steps and one frame."""
        self.step()
        self.draw()


def rates(
    sides: dict[str, tuple[Callable[[], None], Callable[[], int]]], seconds: float
) -> tuple[dict[str, float], dict[str, float]]:
    """Median rates per wall-clock and per CPU second, measured in alternating short slices.

    Args:
        sides: by name (work, count): what to do, and how much has been done so far.
        seconds: of all slices together.
    """
    rates_by_side: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for work, _ in sides.values():
        work()
    slice_s = max(min(0.25, seconds / (4 * len(sides))), 0.005)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or not all(rates_by_side.values()):
        for name, (work, count) in sides.items():
            before, start, cpu = count(), time.perf_counter(), time.process_time()
            while time.perf_counter() < start + slice_s:
                work()
            done = count() - before
            rates_by_side[name].append((done / (time.perf_counter() - start), done / (time.process_time() - cpu)))
    wall, busy = (
        {name: float(np.median([v[k] for v in values])) for name, values in rates_by_side.items()} for k in (0, 1)
    )
    return wall, busy
