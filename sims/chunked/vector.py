"""How chunks of actions are played: several control steps per decision, with a history of observations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space

from mmrl.core.errors import check_at_least


class ChunkVectorEnv(VectorWrapper):
    """Plays the first `execute` control steps of each chunk, and shows the last `history` observations.

    `infos["executed"]` counts the control steps of the decision; choices of the others are not trained on. The rewards
    of a decision are summed. An environment that ended keeps still until its reset.

    Args:
        env: with one control step per decision, of shape [A] or [1, A], and autoreset disabled.
        chunk: H, control steps of an action.
        execute: control steps that are played before the next decision; None for all.
        history: observations of the last control steps that are shown, the oldest first, as a first axis of every
            array; the first one is repeated at the beginning. With 1 there is no such axis.
    """

    def __init__(self, env: VectorEnv, chunk: int, execute: int | None = None, history: int = 1):
        super().__init__(env)
        step = env.single_action_space
        if not isinstance(step, spaces.Box) or len(step.shape) > 2 or (len(step.shape) == 2 and step.shape[0] != 1):
            raise ValueError(f"{env} takes actions {step}; chunks need one control step of real numbers per decision")
        if env.metadata.get("autoreset_mode") not in (AutoresetMode.DISABLED, "Disabled"):
            raise ValueError(
                f"{env}: chunks need environments that keep still at their end; set sim.autoreset=disabled"
            )
        self.chunk, self.execute, self.history = chunk, execute or chunk, history
        check_chunk(chunk, self.execute, history)
        low, high = (np.broadcast_to(side.reshape(1, -1), (chunk, side.size)) for side in (step.low, step.high))
        self.single_action_space = spaces.Box(low, high, dtype=step.dtype)  # type: ignore[arg-type]
        self.action_space = batch_space(self.single_action_space, env.num_envs)
        self.single_observation_space = _repeat(env.single_observation_space, history)
        self.observation_space = batch_space(self.single_observation_space, env.num_envs)
        self.over = np.zeros(env.num_envs, bool)
        self._flags = np.zeros((2, env.num_envs), bool)
        self._frames: dict[str, np.ndarray] = {}
        # called after each control step with the indices of the environments that moved
        self.step_callback: Callable[[np.ndarray], None] | None = None

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, infos = self.env.reset(seed=seed, options=options)
        mask = np.asarray((options or {}).get("reset_mask", np.ones(self.num_envs, bool)), bool)
        self.over &= ~mask
        self._flags[:, mask] = False
        return self._observe(observation, mask, first=True), infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        actions = np.asarray(actions)
        rewards, executed = np.zeros(self.num_envs), np.zeros(self.num_envs, np.int64)
        infos: dict[str, Any] = {}
        observation: Any = None
        for k in range(self.execute):
            live = ~self.over
            if k and not live.any():
                break
            frame, reward = self._play(actions[:, k], live, infos)
            observation = self._observe(frame, live)
            rewards[live] += reward[live]
            executed[live] += 1
        return observation, rewards, *self._flags.copy(), {**infos, "executed": executed}

    def _play(self, action: np.ndarray, live: np.ndarray, infos: dict[str, Any]) -> tuple[Any, np.ndarray]:
        """Play one control step [n, A]; returns observation and rewards, and updates flags and infos of live rows."""
        shape, dtype = self.env.action_space.shape, self.env.action_space.dtype
        observation, reward, *flags, info = self.env.step(action.reshape(shape).astype(dtype))
        self._flags[:, live] = np.stack(flags)[:, live]
        self.over |= self._flags.any(axis=0)
        _update(infos, info, live)
        if self.step_callback is not None:
            self.step_callback(np.flatnonzero(live))
        return observation, np.asarray(reward, np.float64)

    def _observe(self, observation: Any, rows: np.ndarray, first: bool = False) -> Any:
        """Append the observation of some environments to their history."""
        if self.history == 1:
            return observation
        parts = observation if isinstance(observation, Mapping) else {"state": observation}
        output: dict[str, Any] = {}
        for name, value in parts.items():
            if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf":
                output[name] = value  # instructions
                continue
            if name not in self._frames:
                self._frames[name] = np.repeat(value[:, None], self.history, axis=1)
            frames = self._frames[name]
            frames[rows] = value[rows, None] if first else np.concatenate([frames[rows, 1:], value[rows, None]], axis=1)
            output[name] = frames.copy()
        return output if isinstance(observation, Mapping) else output["state"]

    def render(self, i: int = 0, size: int = 256) -> np.ndarray:  # type: ignore[override]
        """Image of environment i, uint8 [H, W, 3]."""
        return self.env.render(i, size)  # type: ignore[call-arg,return-value]


def check_chunk(chunk: int, execute: int, history: int) -> None:
    """Refuse sizes that no chunk has."""
    check_at_least(1, "sim", chunk=chunk, history=history)
    if not 1 <= execute <= chunk:
        raise ValueError(f"execute={execute} control steps of a chunk of {chunk}: must be between 1 and {chunk}")


def _repeat(space: Any, frames: int) -> Any:
    """Return the space of a history of observations; text has none."""
    if frames == 1:
        return space
    if isinstance(space, spaces.Dict):
        return spaces.Dict({name: _repeat(part, frames) for name, part in space.spaces.items()})
    return batch_space(space, frames) if isinstance(space, spaces.Box) else space


def _update(kept: dict[str, Any], found: Mapping[str, Any], rows: np.ndarray) -> None:
    """Update infos of some environments; those of environments that ended earlier stay."""
    for name, value in found.items():
        if isinstance(value, Mapping):
            _update(kept.setdefault(name, {}), value, rows)
        elif isinstance(value, np.ndarray) and name in kept and len(value) == len(rows):
            kept[name] = np.where(rows.reshape(-1, *[1] * (value.ndim - 1)), value, kept[name])
        else:
            kept[name] = value
