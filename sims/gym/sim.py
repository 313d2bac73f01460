"""Gymnasium environments, by id, as a simulator."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces

from mmrl.types import Sim
from sims.gym.enums import mend_enums
from sims.gym.guard import Guard, add_divergence_check
from sims.gym.opengl import choose_gl
from sims.gym.vector import GymVectorEnv


@dataclass(frozen=True)
class GymSim(Sim):
    """Environments of one registered id, stepped one after the other in this process.

    An environment that raises, or reports a number that is not finite, is truncated with `info["error"]` and recreated.

    Args:
        id: as in `gymnasium.make`, for example "CartPole-v1", or "package:Name-v0" to import a package first.
        kwargs: further arguments of the environment.
        autoreset: what happens after an episode. "disabled": whoever steps asks for the reset; needed for evaluation.
        max_episode_steps: time limit in decisions; None keeps the registered one.
        fast_render: MuJoCo cameras without shadows and anti-aliasing, many times faster; the images differ.
    """

    id: str
    kwargs: dict[str, Any] = field(default_factory=dict)
    autoreset: Literal["next_step", "same_step", "disabled"] = "disabled"
    max_episode_steps: int | None = None
    fast_render: bool = True

    def __post_init__(self) -> None:
        if self.renders_images:
            choose_gl()
        try:
            package, _, name = self.id.rpartition(":")
            if package:
                importlib.import_module(package)
            gymnasium.spec(name)
        except (gymnasium.error.Error, ImportError) as error:
            raise ValueError(
                f"sim.id={self.id!r} is not a registered environment: {error}; "
                "write package:Name-v0 if a package registers it when imported"
            ) from error
        if self.autoreset not in _MODES:
            raise ValueError(f"sim.autoreset must be one of {sorted(_MODES)}, got {self.autoreset!r}")

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.id

    @property
    def renders_images(self) -> bool:
        """Whether the environment's own renderer makes the images."""
        return self.kwargs.get("render_mode") is not None

    def make(self, num_envs: int) -> GymVectorEnv:
        if num_envs < 1:
            raise ValueError(f"a vector environment needs at least one environment, got num_envs={num_envs}")
        guarded = [lambda: Guard(self.make_checked)] * num_envs
        return GymVectorEnv(guarded, autoreset_mode=_MODES[self.autoreset])

    def sizes(self) -> dict[str, Any]:
        """Sizes of a policy that reads a state vector; empty for other observations."""
        env = self.make_env()
        seen, action = env.observation_space, env.action_space
        env.close()
        if not isinstance(seen, spaces.Box) or len(seen.shape) != 1:
            return {}
        sizes: dict[str, Any] = {"observation_dims": seen.shape[0]}
        if isinstance(action, spaces.Discrete):
            return sizes | {"actions": int(action.n), "kind": "categorical", "low": -1.0, "high": 1.0}
        if isinstance(action, spaces.Box) and len(action.shape) == 1:
            bounds = {"low": action.low.tolist(), "high": action.high.tolist()}
            return sizes | {"actions": action.shape[0], "kind": "gaussian", **bounds}
        return sizes

    def make_env(self) -> gymnasium.Env:
        """Make one environment; Dict observations of numbers are flattened to one state vector."""
        env = self.make_registered()
        if isinstance(env.observation_space, spaces.Dict) and _all_numbers(env.observation_space):
            return gymnasium.wrappers.FlattenObservation(env)
        return env

    def make_registered(self) -> gymnasium.Env:
        """One environment as its package makes it."""
        if not str(gymnasium.spec(self.id.rpartition(":")[2]).entry_point).startswith("gymnasium."):
            mend_enums()  # gymnasium's own environments need no MuJoCo, or compare as it does
        env = gymnasium.make(self.id, max_episode_steps=self.max_episode_steps, disable_env_checker=True, **self.kwargs)
        if self.fast_render:
            _simplify_cameras(env)
        return env

    def make_checked(self) -> gymnasium.Env:
        """One environment that fails where its simulation diverges."""
        return add_divergence_check(self.make_env())

    def contract(self) -> dict[str, Any]:
        """Entries that must be equal for results to be comparable."""
        return {"sim": self.id, "kwargs": dict(self.kwargs), "max_episode_steps": self.max_episode_steps}


def _all_numbers(space: spaces.Dict) -> bool:
    return all(
        _all_numbers(part) if isinstance(part, spaces.Dict) else isinstance(part, spaces.Box) and part.dtype != np.uint8
        for part in space.values()
    )


_MODES = {
    "next_step": gymnasium.vector.AutoresetMode.NEXT_STEP,
    "same_step": gymnasium.vector.AutoresetMode.SAME_STEP,
    "disabled": gymnasium.vector.AutoresetMode.DISABLED,
}


def _simplify_cameras(env: gymnasium.Env) -> None:
    """Switch off shadow maps, multisampling and fine tessellation, which dominate software rendering."""
    try:
        model = getattr(env.unwrapped, "model", None)
    except ValueError:  # some make their model at the first reset
        env.reset(seed=0)
        model = env.unwrapped.model  # type: ignore[attr-defined]
    visual = getattr(model, "vis", None)
    if visual is None:
        return
    for name, value in (("shadowsize", 0), ("offsamples", 0), ("numslices", 12), ("numstacks", 8)):
        setattr(visual.quality, name, value)
