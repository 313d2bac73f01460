"""A simulated arm as a robot: its control steps pass with the clock, whether a command comes or not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from mmrl.api.environments import SingleEnv
from mmrl.api.robots.clock import Clock
from mmrl.api.robots.robot import Robot, RobotFeedback
from mmrl.core.errors import ConfigError
from mmrl.core.types import Sim

_DISPLACEMENTS = 3
"""First numbers of an action that move the hand and are 0 where it stays; the others, such as a gripper, keep."""


class SimulatedRobot(Robot):
    """One environment of a simulator, in which time passes by a clock.

    A command is one control step of the simulation. For every whole period that passed without a command, the
    simulation plays a step in which the arm holds, so that a policy that is too slow is seen to be.

    Args:
        sim: the simulator.
        clock: of the control steps.
        fps: control steps per second; None for the simulator's own.
    """

    def __init__(self, sim: Sim, clock: Clock, fps: float | None = None):
        self.sim, self.clock = sim.stepwise(), clock
        self._env = SingleEnv(self.sim)
        stated = fps or self._env.metadata.get("render_fps")
        if not stated:
            raise ConfigError(f"sim {sim.name!r} does not say metadata['render_fps']; give fps=")
        self.fps = float(stated)
        space: Any = self._env.action_space
        if not hasattr(space, "low") or len(space.shape) > 2 or (len(space.shape) == 2 and space.shape[0] != 1):
            raise ConfigError(f"sim {sim.name!r} takes actions {space}; a robot takes one vector per control step")
        self.action_dims = int(np.prod(space.shape))
        self.missed = 0  # control steps that passed without a command
        self._observation: Any = None
        self._feedback, self._last, self._due = RobotFeedback(), np.zeros(self.action_dims, np.float32), math.inf

    def begin(self, seed: int) -> None:
        self._observation, _ = self._env.reset(seed=seed)
        self._feedback = RobotFeedback(reward=0.0, success=False)
        self._last, self._due = np.zeros_like(self._last), math.inf

    def read(self) -> Mapping[str, Any]:
        observation = self._observation
        return observation if isinstance(observation, Mapping) else {"state": observation}

    def write(self, action: np.ndarray) -> None:
        now = self.clock.now()
        missed = max(math.floor((now - self._due) * self.fps + 1e-6), 0) if self._due < math.inf else 0
        self.missed += missed
        rewards = [self._step(each) for each in [*[self.hold()] * missed, action] if not self._feedback.over]
        self._feedback = RobotFeedback(**{**vars(self._feedback), "reward": float(sum(rewards))})
        self._last, self._due = np.array(action, np.float32), now + 1 / self.fps

    def _step(self, action: np.ndarray) -> float:
        space: Any = self._env.action_space
        bounded = np.clip(np.reshape(action, space.shape), space.low, space.high).astype(space.dtype)
        self._observation, reward, terminated, truncated, infos = self._env.step(bounded)
        if infos.get("error"):
            raise RuntimeError(f"sim {self.sim.name!r} failed: {infos['error']}")
        scores = {name: float(value) for name, value in infos.get("scores", {}).items()}
        success = bool(scores["success"]) if "success" in scores else None
        self._feedback = RobotFeedback(reward, terminated, truncated and not terminated, success, scores)
        return reward

    def hold(self) -> np.ndarray:
        action = self._last.copy()
        action[:_DISPLACEMENTS] = 0
        return action

    def feedback(self) -> RobotFeedback:
        return self._feedback

    def expert(self) -> np.ndarray:
        """The action [A] of the simulator's scripted expert."""
        if not hasattr(self.sim, "expert"):
            raise ConfigError(f"sim {self.sim.name!r} has no scripted expert; takeover=expert needs one")
        return np.asarray(self.sim.expert(self._env.vector_env), np.float32)[0, 0]

    def close(self) -> None:
        self._env.close()
