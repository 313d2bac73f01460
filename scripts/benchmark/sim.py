"""The two sides of a simulator's benchmark: the whole environment, and the bare batch and renderer beneath it."""

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
    """An environment played with random actions; worlds that ended begin anew at once, from a seed of their own."""

    def __init__(self, env: TabletopVectorEnv):
        self.env, self.steps, self.frames = env, 0, 0
        shape = (64, env.num_envs, env.chunk, env.action_dims)
        self._actions = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
        self._seed, self._turn = env.num_envs, 0
        env.reset(seed=list(range(env.num_envs)))

    def decide(self) -> None:
        """One decision of all worlds."""
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
    """`Batch.step` and the renderer alone, over states and controls that the environment went through."""

    def __init__(self, whole: Whole, size: int, threads: int):
        env = whole.env
        self.renderer: Renderer = env.renderer
        self.batch = Batch(env.worlds.model, env.num_envs, threads)
        self.substeps = env.worlds.substeps
        self.ids, self.size, self.chunk = np.arange(env.num_envs), size, env.chunk
        self.steps = self.frames = self._turn = 0
        ctrl, moved = env.worlds.batch.bind("ctrl"), []
        env.step_callback = lambda ids: moved.append(ctrl.copy())
        self._recorded = []
        while len(self._recorded) < _DECISIONS:
            before = env.worlds.batch.state.copy()
            moved.clear()
            whole.decide()
            if len(moved) == env.chunk:
                self._recorded.append((before, list(moved)))
        env.step_callback = None
        self._ctrl = self.batch.bind("ctrl")

    def step(self) -> None:
        """The control steps of one decision of all worlds."""
        self._turn = (self._turn + 1) % len(self._recorded)
        before, controls = self._recorded[self._turn]
        self.batch.state[:] = before
        for ctrl in controls:
            self._ctrl[:] = ctrl
            self.batch.step(nstep=self.substeps)
        self.steps += len(controls) * len(self.ids)

    def draw(self) -> None:
        """One frame of all worlds."""
        self.renderer.frames(self.batch, self.ids, CAMERA, self.size)
        self.frames += len(self.ids)

    def step_and_draw(self) -> None:
        """What a decision costs at least: its control steps and a frame."""
        self.step()
        self.draw()


def rates(
    sides: dict[str, tuple[Callable[[], None], Callable[[], int]]], seconds: float
) -> tuple[dict[str, float], dict[str, float]]:
    """Median rates by the wall's clock and by the CPU's, each side measured in short slices, in turn, over and over.

    Args:
        sides: by name (work, count): what to do, and how much has been done so far.
        seconds: of all slices together.
    """
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for work, _ in sides.values():
        work()
    slice_s = max(min(0.25, seconds / (4 * len(sides))), 0.005)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or not all(found.values()):
        for name, (work, count) in sides.items():
            before, start, cpu = count(), time.perf_counter(), time.process_time()
            while time.perf_counter() < start + slice_s:
                work()
            done = count() - before
            found[name].append((done / (time.perf_counter() - start), done / (time.process_time() - cpu)))
    wall, busy = ({name: float(np.median([v[k] for v in values])) for name, values in found.items()} for k in (0, 1))
    return wall, busy
