"""Robots and policies whose numbers are known by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mmrl.api.robots.clock import Clock
from mmrl.api.robots.inference import ChunkQuery
from mmrl.api.robots.robot import Robot, RobotFeedback


class Arm(Robot):
    """Observes the number of commands so far, and notes them; after `steps` commands the episode is over.

    Args:
        clock: by which a slow step takes its time.
        steps: of an episode; None for no end.
        slow: control step -> seconds that reading takes in it.
    """

    fps, action_dims = 50.0, 1

    def __init__(self, clock: Clock | None = None, steps: int | None = None, slow: Mapping[int, float] | None = None):
        self.clock, self.steps, self.slow = clock, steps, dict(slow or {})
        self.commands: list[float] = []
        self.closed = False

    def begin(self, seed: int) -> None:
        self.commands = []

    def read(self) -> Mapping[str, Any]:
        if self.clock is not None and (seconds := self.slow.pop(len(self.commands), 0)):
            self.clock.sleep_until(self.clock.now() + seconds)
        return {"state": np.array([len(self.commands)], np.float32), "instruction": "count"}

    def write(self, action: np.ndarray) -> None:
        self.commands.append(float(action[0]))

    def hold(self) -> np.ndarray:
        return np.array([-1.0], np.float32)

    def feedback(self) -> RobotFeedback:
        over = self.steps is not None and len(self.commands) >= self.steps
        return RobotFeedback(reward=float(over), terminated=over, success=over)

    def close(self) -> None:
        self.closed = True


def count_ahead(size: int):
    """A policy whose action for control step k is k, computed from the step of the observation; [size, 1]."""

    def answer(query: ChunkQuery) -> np.ndarray:
        return query.observation["state"][0] + np.arange(size, dtype=np.float32)[:, None]

    return answer
