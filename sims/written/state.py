"""The state of an environment by name, as written rewards read it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

METHOD = "named_state"
"""Method of a user's environment that returns its state: numbers, lists and arrays by name."""


def read_states(env: VectorEnv, observation: Any, names: Sequence[str] | None) -> list[dict[str, Any]]:
    """The state of each environment, as plain numbers and lists.

    Args:
        env: environments that are stepped in this process.
        observation: of the last step or reset, of all environments.
        names: of the columns of the observed state; None for what the environment itself names: `named_state()`, or the
            joints, bodies and sites of its MuJoCo model.

    Raises:
        ValueError: nothing names the state, the names are not as many as the columns, or `named_state` gives something
            else.
    """
    if names is not None:
        rows = np.asarray(observation["state"] if isinstance(observation, Mapping) else observation)
        if rows.ndim != 2 or rows.shape[1] != len(names):
            raise ValueError(
                f"task.state_names has {len(names)} names, and the observation of the environment is "
                f"{rows.shape[1] if rows.ndim == 2 else 'no row of'} numbers"
            )
        return [dict(zip(names, map(float, row))) for row in rows]
    envs: Sequence[gymnasium.Env] = getattr(env, "envs", ())
    if not envs:
        raise ValueError(f"{env}: its environments cannot be read; name the columns: task.state_names=[x,y]")
    return [read_state(each.unwrapped) for each in envs]


def read_state(env: Any) -> dict[str, Any]:
    """The state of one environment, without its wrappers; arguments and errors as of `read_states`."""
    if hasattr(env, METHOD):
        return _plain(env, env.named_state())
    if hasattr(getattr(env, "model", None), "njnt") and hasattr(env, "data"):
        return read_mujoco(env.model, env.data)
    raise ValueError(
        f"{type(env).__name__} names no state; name the columns of its observation, task.state_names=[x,y], or give "
        f"the environment a method {METHOD}() that returns numbers by name"
    )


def read_mujoco(model: Any, data: Any) -> dict[str, Any]:
    """Time in seconds; by name, position and velocity of joints (rad, m), position [3] of bodies and sites (m).

    What has no name in the model is left out.
    """
    joints = {}
    for joint in (model.joint(number) for number in range(model.njnt)):
        if joint.name:
            values = data.joint(joint.name)
            position, velocity = values.qpos.tolist(), values.qvel.tolist()
            single = len(velocity) == 1
            joints[joint.name] = {
                "position": position[0] if single else position,
                "velocity": velocity[0] if single else velocity,
            }
    names = [model.body(number).name for number in range(1, model.nbody)]  # 0 is the world
    bodies = {name: data.body(name).xpos.tolist() for name in names if name}
    names = [model.site(number).name for number in range(model.nsite)]
    sites = {name: data.site(name).xpos.tolist() for name in names if name}
    state = {"time": float(data.time), "joints": joints, "bodies": bodies, "sites": sites}
    return {name: value for name, value in state.items() if value != {}}


def _plain(env: Any, state: Any) -> dict[str, Any]:
    try:
        plain = json.loads(json.dumps(state, default=lambda value: value.tolist(), allow_nan=False))
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{type(env).__name__}.{METHOD}() must return finite numbers by name: {error}") from error
    if not isinstance(plain, dict) or not plain:
        raise ValueError(f"{type(env).__name__}.{METHOD}() must return a mapping of numbers, got {plain!r:.80}")
    return plain
