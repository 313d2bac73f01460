"""Evaluation rollouts that blend or replan chunks at every control step."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space

from mmrl.core.types import Context, Episode, Prompt, Task
from mmrl.rollouts.base import simulator_of
from mmrl.rollouts.env.episodic import EpisodicRollout

if TYPE_CHECKING:
    from collections.abc import Sequence


class ControlStepRollout(EpisodicRollout):
    """Base class of rollouts that wrap the simulator with one control step per decision; refused in training."""

    option: ClassVar[str]
    """Name in conf/rollout."""
    plays: ClassVar[str]
    """Name of the executed actions, which have no log-probability."""

    _chunk = 1

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        if ctx.purpose == "train":
            raise ValueError(
                f"rollout={self.option} plays {self.plays}, which no log-probability belongs to: train with "
                "rollout=env, and set data.evaluation.rollout._target_ to this class"
            )
        ctx = self._prepare(ctx)
        self._chunk = ctx.policy.chunk  # type: ignore[assignment]
        return super().collect(prompts, ctx)

    @abstractmethod
    def _prepare(self, ctx: Context) -> Context:
        """Refuse policies that cannot be played, and return the context that episodes are sampled in."""

    @abstractmethod
    def _wrap(self, env: VectorEnv) -> VectorEnv:
        """An environment that takes chunks of `self._chunk` control steps."""

    def _environment(self, task: Task, count: int) -> VectorEnv:
        sim = simulator_of(task, f"rollout={self.option}")
        if self._env is None or self._made_for != (sim, count):
            self.close()
            self._env, self._made_for = self._wrap(sim.stepwise().make(count)), (sim, count)
        return self._env


class ControlStepVectorEnv(VectorWrapper):
    """Takes chunks in place of the single control steps of an environment.

    Args:
        env: with one control step per decision, of shape [A] or [1, A].
        chunk: H, control steps of an action.
        use: what needs it, for the error.
    """

    def __init__(self, env: VectorEnv, chunk: int, use: str):
        super().__init__(env)
        step = env.single_action_space
        if not isinstance(step, spaces.Box) or len(step.shape) > 2 or (len(step.shape) == 2 and step.shape[0] != 1):
            raise ValueError(f"{env} takes actions {step}; {use} needs one control step of real numbers")
        low, high = (np.broadcast_to(side.reshape(1, -1), (chunk, side.size)) for side in (step.low, step.high))
        self.single_action_space = spaces.Box(low, high, dtype=step.dtype)  # type: ignore[arg-type]
        self.action_space = batch_space(self.single_action_space, env.num_envs)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._begin(np.asarray((options or {}).get("reset_mask", np.ones(self.num_envs, bool)), bool))
        return self.env.reset(seed=seed, options=options)

    @abstractmethod
    def _begin(self, starts: np.ndarray) -> None:
        """Forget the chunks of environments, bool [n], that begin an episode."""

    def render(self, i: int = 0, size: int = 256) -> np.ndarray:  # type: ignore[override]
        """Image of environment i, uint8 [H, W, 3]."""
        return self.env.render(i, size)  # type: ignore[call-arg,return-value]
