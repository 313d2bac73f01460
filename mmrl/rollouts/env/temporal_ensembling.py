"""Temporal ensembling: the policy is asked at every control step, and its overlapping chunks are averaged."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from mmrl.core.types import Context
from mmrl.rollouts.env.control_steps import ControlStepRollout, ControlStepVectorEnv


class TemporalEnsemblingRollout(ControlStepRollout):
    """Whole episodes in which every control step plays the average of all chunks that cover it.

    The action of a control step is sum_i w_i a_i / sum_i w_i, w_i = exp(-decay i), over the chunks that predict it,
    from the oldest (i = 0) to the newest. Any policy with chunks can take it, for evaluation:
    data.evaluation.rollout._target_=mmrl.rollouts.env.temporal_ensembling.TemporalEnsemblingRollout. What is played is
    not the sampled action, so it is refused in training.
    Source: Zhao et al., "Learning Fine-Grained Bimanual Manipulation with Low-Cost Hardware", 2023, section IV-B and
    algorithm 2, arXiv:2304.13705.

    Args:
        decay: m; 0 averages evenly, a larger one trusts older chunks more.
        max_envs: most environments at once; more episodes are played in equal waves.
        bootstrap: as of `EpisodicRollout`.
    """

    option, plays = "temporal_ensembling", "averages of chunks"

    def __init__(self, decay: float = 0.01, max_envs: int = 256, bootstrap: bool = True):
        super().__init__(max_envs, bootstrap)
        self.decay = decay

    def _prepare(self, ctx: Context) -> Context:
        if ctx.policy.chunk is None:
            raise ValueError(
                f"rollout=temporal_ensembling averages chunks, but {type(ctx.policy).__name__} returns single actions; "
                "take rollout=env"
            )
        return ctx

    def _wrap(self, env: VectorEnv) -> VectorEnv:
        return TemporalEnsemblingVectorEnv(env, self._chunk, self.decay)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "decay": self.decay, "_chunk": self._chunk}


class TemporalEnsemblingVectorEnv(ControlStepVectorEnv):
    """Takes a chunk at every control step and plays the weighted average of the chunks that cover it.

    Args:
        env: with one control step per decision, of shape [A] or [1, A].
        chunk: H, control steps of an action.
        decay: m of the weights exp(-m i).
    """

    def __init__(self, env: VectorEnv, chunk: int, decay: float):
        super().__init__(env, chunk, "temporal ensembling")
        self._weights = np.exp(-decay * np.arange(chunk))
        # of each control step that is still to come: the sum of weighted actions, and the number of chunks in it
        self._sums = np.zeros((env.num_envs, *self.single_action_space.shape))  # type: ignore[misc]
        self._counts = np.zeros((env.num_envs, chunk), np.int64)

    def _begin(self, starts: np.ndarray) -> None:
        self._sums[starts], self._counts[starts] = 0, 0

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        space = self.env.action_space
        result = self.env.step(self.average(np.asarray(actions)).reshape(space.shape).astype(space.dtype))
        # every control step counts: the rest of the chunk is played later, in averages
        return *result[:4], {name: value for name, value in result[4].items() if name != "executed"}

    def average(self, actions: np.ndarray) -> np.ndarray:
        """Add chunks [n, H, A] that begin now; return the averages [n, A] of the present control step."""
        self._sums += self._weights[self._counts][..., None] * actions
        self._counts += 1
        total = np.cumsum(self._weights)[self._counts[:, 0] - 1]
        present = self._sums[:, 0] / total[:, None]
        self._sums = np.concatenate([self._sums[:, 1:], np.zeros_like(self._sums[:, :1])], axis=1)
        self._counts = np.concatenate([self._counts[:, 1:], np.zeros_like(self._counts[:, :1])], axis=1)
        return present
