"""Base classes of the tabletop simulators: environments, sizes, contract, demonstrations, labelled images."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import mujoco
import numpy as np

from mmrl.core.errors import check_at_least
from mmrl.core.rng import derive_rng
from mmrl.core.types import Sim
from sims.render import make_renderer
from sims.render.base import PIXELS, Kind, resolve
from sims.tabletop.appearance import Appearance
from sims.tabletop.arm import STEP_M
from sims.tabletop.demos import AT_ONCE, Demo, label, play
from sims.tabletop.experts import expert
from sims.tabletop.scene import CAMERAS, CONTROL_HZ, scene_digest
from sims.tabletop.sentences import Wording, sentences
from sims.tabletop.table import TabletopBatch
from sims.tabletop.task import Start, TabletopTask
from sims.tabletop.things import COLOURS
from sims.tabletop.vector import TabletopVectorEnv
from sims.tabletop.worlds import TabletopPhysics
from sims.task import split_of

Level = Literal["easy", "default", "hard"]
_FELT = {
    "offset": (0.48, 0.0, 0.1, 0.0, 0.0, 0.0, 0.0, 0.4, 0.0, -0.3, 0.0, -0.2, 0.0, 0.035),
    "width": (0.1, 0.1, 0.1, 0.015, 0.015, 0.015, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.035),
}
"""The middle of what is felt at work and about its std, rounded: tip (m), set-point minus tip (m), joints minus home
(rad), opening (m)."""

DynamicsFactors = tuple[float, float, float]


@dataclass(frozen=True)
class Tabletop(Sim):
    """Base class of the tabletop simulators.

    Args:
        level: stands for the numbers that are left None: "easy" is meant to be learned in minutes, "hard" varies most.
        chunk: control steps (20 Hz) per decision, executed open loop.
        max_decisions: an episode is cut after so many decisions; None: what the task's level says.
        image_size: pixels a side of the policy's camera.
        renderer: "ray" needs the mujoco wheel only; "egl" and "osmesa" need GL libraries; "auto" takes what draws.
        threads: that step and draw the environments; 0 takes all CPUs. Results do not depend on it.
        wording: of the instructions of training states: "plain" (one sentence), "train" or "held_out" (several).
        held_out_wording: of the instructions of held-out states; None: the same.
        templates: sentences to use instead of the wordings, with the task's slots such as "{colour}".
        dense_reward_weights: weight per dense term; the reward of a decision is weight * (term after - term before) on
            top of the success.
        dynamics: largest factor of the things' mass, their friction and the arm's gains; every environment draws its
            own, log-uniform between 1 / factor and factor. None: what the level says.
        observe: images that the policy sees: "rgb" (the observation's "image"), "depth" (metres), "segmentation"
            (geom ids); none for a policy that reads the state alone: then nothing is drawn.
        appearance: how much the looks of environments vary, each a function of the initial state's seed; None: not at
            all.
    """

    level: Level = "default"
    chunk: int = 5
    max_decisions: int | None = None
    image_size: int = 64
    renderer: Literal["auto", "ray", "egl", "osmesa"] = "ray"
    threads: int = 0
    wording: Wording = "plain"
    held_out_wording: Wording | None = None
    templates: tuple[str, ...] | None = None
    dense_reward_weights: Mapping[str, float] | None = None
    dynamics: DynamicsFactors | None = None
    observe: tuple[Kind, ...] = ("rgb",)
    appearance: Appearance | None = None

    levels: ClassVar[Mapping[str, Mapping[str, Any]]]
    """By level the arguments of the task, `max_decisions`, and `dynamics` where environments differ."""

    def __post_init__(self) -> None:
        check_at_least(1, "sim", chunk=self.chunk, image_size=self.image_size)
        if self.max_decisions is not None and self.max_decisions < 1:
            raise ValueError(f"sim.max_decisions must be at least 1, got {self.max_decisions}")
        if self.level not in ("easy", "default", "hard"):
            raise ValueError(f"sim.level must be easy, default or hard, got {self.level!r}")
        if unknown := [kind for kind in self.observe if kind not in PIXELS]:
            raise ValueError(f"sim.observe: unknown {unknown}; known are {list(PIXELS)}")
        if isinstance(self.appearance, Mapping):  # as a config writes it
            object.__setattr__(self, "appearance", Appearance(**self.appearance))
        terms = sorted({term for part in self.parts for term in part.task.terms})
        if unknown := sorted(set(self.dense_reward_weights or {}) - set(terms)):  # type: ignore[arg-type]
            raise ValueError(f"sim.dense_reward_weights: unknown terms {unknown}; this sim has {terms}")
        if self.dynamics is not None and min(self.dynamics) < 1:
            raise ValueError(f"sim.dynamics are factors of at least 1 (1: no variation), got {list(self.dynamics)}")

    @property
    def parts(self) -> tuple[SingleTaskSim, ...]:
        """The single-task simulators that this one consists of."""
        raise NotImplementedError

    @property
    def task_names(self) -> tuple[str, ...]:
        """Names of the tasks."""
        return tuple(part.task.name for part in self.parts)

    def part_of(self, seed: int) -> int:
        """Index of the part that an initial state belongs to."""
        return 0 if len(self.parts) == 1 else int(derive_rng("task", seed).integers(len(self.parts)))

    def task_of(self, seed: int) -> str:
        return self.task_names[self.part_of(seed)]

    @property
    def renderer_name(self) -> str:
        """Name of the renderer, with "auto" resolved."""
        return resolve(self.renderer)

    def start(self, seed: int) -> tuple[int, Start]:
        """Initial state of a seed, and the index of its part."""
        part = self.part_of(seed)
        start = self.parts[part].begin(seed)
        return part, start if self.appearance is None else replace(start, appearance=self.appearance.look(seed))

    def make(self, num_envs: int) -> TabletopVectorEnv:
        tables = []
        for part in self.parts:
            task, vary = part.task, max(part.dynamics_factors) > 1
            physics = TabletopPhysics(task.things, num_envs, self.threads, task.grip, task.floor_m, vary, task.timestep)
            renderer = make_renderer(self.renderer, physics.model, CAMERAS)
            tables.append(TabletopBatch(task, physics, renderer, part.limit))
        return TabletopVectorEnv(
            tables,
            self.start,
            self.image_size,
            self.chunk,
            self.gripper,
            self.dense_reward_weights or {},
            self.observe,
            self.appearance,
        )

    @property
    def gripper(self) -> bool:
        """Whether some task moves the fingers: a fourth action dimension, and the opening in proprioception."""
        return any(part.task.grip == "free" for part in self.parts)

    def sizes(self) -> dict[str, Any]:
        felt = {"kind": "mean_std", **{name: list(part[: 13 + self.gripper]) for name, part in _FELT.items()}}
        return {
            "action_dims": 3 + self.gripper,
            "chunk": self.chunk,
            "proprio_dims": 13 + self.gripper,
            "processor": {"vectors": {"proprio": felt}},
        }

    def contract(self) -> dict[str, Any]:
        """Entries that must be equal wherever data, checkpoints and results of this simulator are combined."""
        return {
            "sim": self.name,
            "renderer": self.renderer_name,
            "image_size": self.image_size,
            "observe": list(self.observe),
            "appearance": None if self.appearance is None else self.appearance.contract(),
            "level": self.level,
            "chunk": self.chunk,
            "action_scale_m": STEP_M,
            "gripper": "1 open, -1 closed" if self.gripper else "none",
            "control_hz": CONTROL_HZ,
            "wording": self.wording,
            "held_out_wording": self.held_out_wording or self.wording,
            "dense_reward_weights": dict(self.dense_reward_weights or {}),
            "tasks": {part.task.name: part.rules() for part in self.parts},
            "mujoco": mujoco.__version__,
        }

    def demonstrate(self, seeds: Sequence[int], noise: float = 0.3) -> list[Demo]:
        """Expert demonstrations from the states of `seeds`: per decision (raw observation, clean chunk [chunk, A]).

        Args:
            seeds: of the initial states.
            noise: standard deviation of what is added to the executed actions, in actions.
        """
        return play(self, seeds, noise)

    def expert(self, env: TabletopVectorEnv) -> np.ndarray:
        """The scripted expert's next chunk for every environment, float32 [n, chunk, A]."""
        return expert(env)

    def label_images(self, seeds: Sequence[int], joint_noise: float = 0.3) -> dict[str, Any]:
        """Labelled images for "point at the named object", one per seed; see `sims.tabletop.demos.label`.

        Args:
            seeds: of the scenes.
            joint_noise: how far each joint of the arm may stand from its start, rad.
        """
        if not len(seeds):
            raise ValueError("no seeds: ask for at least one initial state")
        labelled = []
        for i in range(0, len(seeds), AT_ONCE):
            part = list(seeds[i : i + AT_ONCE])
            env = self.make(len(part))
            labelled.append(label(env, part, joint_noise))
            env.close()
        joined = {name: np.concatenate([p[name] for p in labelled]) for name in labelled[0] if name != "instruction"}
        return {**joined, "instruction": [text for p in labelled for text in p["instruction"]]}


@dataclass(frozen=True)
class SingleTaskSim(Tabletop):
    """Tabletop simulator of a single task."""

    slots: ClassVar[tuple[str, ...]]
    """What every template must hold."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for wording in (self.wording, self.held_out_wording or self.wording):
            missing = [t for t in self.sentences(wording) if not all(slot in t for slot in self.slots)]
            if missing or not self.sentences(wording):
                raise ValueError(f"every one of sim.templates must hold {list(self.slots)}, got {missing}")

    @property
    @abstractmethod
    def task(self) -> TabletopTask:
        """The rules of the episode."""

    @property
    def parts(self) -> tuple[SingleTaskSim, ...]:
        return (self,)

    def task_arguments(self, *names: str) -> dict[str, Any]:
        """Options by name, each the level's where it is None."""
        return {name: self._level_value(name) for name in names}

    def _level_value(self, name: str) -> Any:
        override = getattr(self, name)
        value = self.levels[self.level].get(name) if override is None else override
        return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value

    @property
    def limit(self) -> int:
        """Decisions after which an episode is cut."""
        return self._level_value("max_decisions")

    @property
    def dynamics_factors(self) -> DynamicsFactors:
        """Largest factors of mass, friction and gains."""
        return self._level_value("dynamics") or (1.0, 1.0, 1.0)

    def stepwise(self) -> SingleTaskSim:
        return replace(self, chunk=1, max_decisions=self.limit * self.chunk)

    def sentences(self, wording: Wording) -> tuple[str, ...]:
        """The templates in one wording, or the given ones."""
        return sentences(self.task.name, wording) if self.templates is None else tuple(self.templates)

    @cached_property
    def _start_inputs(self) -> tuple[TabletopTask, dict[str, tuple[str, ...]], DynamicsFactors]:
        """The task, the templates of both splits and the spreads: the same for every seed."""
        words = {"train": self.wording, "held_out": self.held_out_wording or self.wording}
        return self.task, {split: self.sentences(wording) for split, wording in words.items()}, self.dynamics_factors

    def begin(self, seed: int) -> Start:
        """The initial state that a seed stands for."""
        task, texts, dynamics_factors = self._start_inputs
        start = task.start(derive_rng(task.name, seed), texts[split_of(seed)])
        if max(dynamics_factors) > 1:
            draw = derive_rng("dynamics", seed).uniform(-1, 1, 3)
            start = replace(start, dynamics=tuple(np.asarray(dynamics_factors) ** draw))
        return start

    def rules(self) -> dict[str, Any]:
        """What the contract says of the task."""
        return {
            "scene": scene_digest(self.task.things, self.task.timestep),
            **{name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self.task).items()},  # type: ignore[call-overload]
            "max_decisions": self.limit,
            "dynamics": list(self.dynamics_factors),
            "templates": {split: list(texts) for split, texts in self._start_inputs[1].items()},
        }


def check_colours(option: str, colours: Sequence[str], least: int = 1) -> None:
    """Raise for colours that are unknown, repeated or too few."""
    if unknown := [colour for colour in colours if colour not in COLOURS]:
        raise ValueError(f"sim.{option}: unknown {unknown}; known are {sorted(COLOURS)}")
    if len(set(colours)) != len(colours) or len(colours) < least:
        words = {1: "one colour", 2: "two different colours"}[least]
        raise ValueError(f"sim.{option} must be at least {words}, none twice, got {list(colours)}")


def check_yaw(yaw: float) -> None:
    """Raise for cube rotations that open fingers might not fit around."""
    if not 0 <= yaw <= 0.25:
        raise ValueError(f"sim.yaw must be in [0, 0.25] rad where cubes are grasped, got {yaw}")
