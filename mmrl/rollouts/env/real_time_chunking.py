"""Real-time chunking: the policy computes the next chunk while the present one is played."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv

from mmrl.core.errors import check_at_least, check_interval
from mmrl.core.evaluation_mode import evaluation_mode
from mmrl.core.rng import Noise
from mmrl.core.types import Completion, Context, Request, Sampling
from mmrl.rollouts.env.control_steps import ControlStepRollout, ControlStepVectorEnv

if TYPE_CHECKING:
    from collections.abc import Sequence

PREVIOUS, KNOWN = "previous_chunk", "previous_steps"


class RealTimeChunkingRollout(ControlStepRollout):
    """Whole episodes in which a new chunk is there only `delay` control steps after what it was computed from.

    Meanwhile the old chunk is played. A flow policy is guided to begin the new one as the old one goes on, so that the
    motion does not jump; with `limit=0` it is not. The first chunk of an episode is waited for. For evaluation:
    data.evaluation.rollout._target_=mmrl.rollouts.env.real_time_chunking.RealTimeChunkingRollout. What is played is
    from two chunks, so it is refused in training.
    Source: Black et al., "Real-Time Execution of Action Chunking Flow Policies", 2025, algorithm 1, arXiv:2506.07339.
    Differs: the delay is given and not measured.

    Args:
        delay: d, control steps that the policy takes.
        execute: s, control steps from one chunk to the next, at least d; at most the chunk less d.
        limit: beta, most of the guidance.
        max_envs: most environments at once; more episodes are played in equal waves.
        bootstrap: as of `EpisodicRollout`.
    """

    option, plays = "real_time_chunking", "parts of two chunks"

    def __init__(self, delay: int, execute: int, limit: float = 5.0, max_envs: int = 256, bootstrap: bool = True):
        super().__init__(max_envs, bootstrap)
        check_at_least(1, "rollout", execute=execute)
        check_at_least(0, "rollout", limit=limit)
        check_interval("rollout", f"[0, {execute}]", delay=delay)
        self.delay, self.execute, self.limit = delay, execute, limit

    def _prepare(self, ctx: Context) -> Context:
        policy: Any = ctx.policy
        if not hasattr(policy, "continue_chunks"):
            raise ValueError(
                f"rollout=real_time_chunking guides a flow, but {type(policy).__name__} is none; take a policy with a "
                "flow head, or rollout=temporal_ensembling"
            )
        if self.execute + self.delay > policy.chunk:
            raise ValueError(
                f"rollout=real_time_chunking: delay={self.delay} and execute={self.execute} are more control steps "
                f"than the policy's chunk of {policy.chunk}; raise sim.chunk and train again, or lower them"
            )
        weights = soft_mask(policy.chunk, self.delay, self.execute)
        return replace(ctx, engine=ContinuingEngine(policy, weights, self.limit))

    def _wrap(self, env: VectorEnv) -> VectorEnv:
        return RealTimeVectorEnv(env, self._chunk, self.delay, self.execute)

    def __getstate__(self) -> dict[str, Any]:
        names = ("delay", "execute", "limit", "_chunk")
        return {**super().__getstate__(), **{name: getattr(self, name) for name in names}}


def soft_mask(chunk: int, delay: int, execute: int) -> torch.Tensor:
    """Weights [chunk] by which a chunk is held to the one before it, shifted by what was executed of that.

    1 for the `delay` control steps that are played before the new chunk is there, then c (e^c - 1) / (e - 1) with c =
    (chunk - execute - i) / (chunk - execute - delay + 1), and 0 for the last `execute`, of which the old one has none.
    Source: Black et al., "Real-Time Execution of Action Chunking Flow Policies", 2025, equation 5, arXiv:2506.07339.
    """
    steps = torch.arange(chunk)
    c = (chunk - execute - steps) / (chunk - execute - delay + 1)
    fading = c * torch.expm1(c) / (math.e - 1)
    return torch.where(steps < delay, 1.0, torch.where(steps < chunk - execute, fading, 0.0))


@dataclass
class ContinuingEngine:
    """An engine whose chunks continue those that the observations name, in the entries `PREVIOUS` and `KNOWN`.

    Args:
        policy: with a flow head.
        weights: [H], by which a chunk is held to the one before it (`soft_mask`).
        limit: beta, most of the guidance.
    """

    policy: Any
    weights: torch.Tensor  # [H]
    limit: float

    def sample(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        policy, raws = self.policy, [request.observation for request in requests]
        inputs = policy.collate([policy.encode(raw) for raw in raws])
        observation = {name: column.to(policy.device) for name, column in inputs.items()}
        chunks = torch.stack([policy.encode_demonstration(raw, raw[PREVIOUS]) for raw in raws]).to(policy.device)
        has_previous = torch.tensor([float(raw[KNOWN][0]) for raw in raws], device=policy.device)
        weights = (has_previous[:, None] * self.weights.to(policy.device))[..., None].expand_as(chunks)
        with evaluation_mode(policy):
            samples = policy.continue_chunks(
                observation, chunks, weights, self.limit, Noise([request.seed for request in requests])
            )
        empty, unlearned = torch.zeros(samples.shape[1]), torch.zeros(samples.shape[1], dtype=torch.bool)
        return [
            Completion({}, chunk, empty, unlearned, output)
            for chunk, output in zip(samples.cpu(), policy.decode_chunks(samples))
        ]


class RealTimeVectorEnv(ControlStepVectorEnv):
    """Takes a chunk every `execute` control steps and begins to play it `delay` control steps later.

    Observations have two more entries: what is left of the chunk that is being played, [H, A] with zeros behind it, and
    whether there is one, [1].

    Args:
        env: with one control step per decision, of shape [A] or [1, A].
        chunk: H, control steps of an action.
        delay: d.
        execute: s.
    """

    def __init__(self, env: VectorEnv, chunk: int, delay: int, execute: int):
        super().__init__(env, chunk, "real-time chunking")
        self.delay, self.execute = delay, execute
        self._left = np.zeros(self.action_space.shape, np.float32)  # type: ignore[arg-type]
        self._known = np.zeros((env.num_envs, 1), np.float32)

    def _begin(self, starts: np.ndarray) -> None:
        self._left[starts], self._known[starts] = 0, 0

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, infos = super().reset(seed=seed, options=options)
        return self._describe(observation), infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        chunks = np.array(actions, np.float32)
        waiting = self._known[:, 0] > 0
        chunks[waiting, : self.delay] = self._left[waiting, : self.delay]
        space, total, reports = self.env.action_space, np.zeros(self.num_envs), {}
        over = np.zeros((2, self.num_envs), bool)  # terminated and truncated
        for step in range(self.execute):
            live = ~over.any(axis=0)
            if not live.any():
                break
            action = chunks[:, step].reshape(space.shape).astype(space.dtype)
            observation, rewards, *ends, infos = self.env.step(action)
            total, over = total + live * rewards, np.where(live, ends, over)
            reports = _merge(reports, infos, live)
        self._left = np.concatenate([chunks[:, self.execute :], np.zeros_like(chunks[:, : self.execute])], axis=1)
        self._known[:] = 1
        reports.pop("executed", None)  # the rest of the chunk is played later
        return self._describe(observation), total, *over, reports

    def _describe(self, observation: Any) -> dict[str, Any]:
        entries = observation if isinstance(observation, dict) else {"state": observation}
        return {**entries, PREVIOUS: self._left.copy(), KNOWN: self._known.copy()}


def _merge(old: dict[str, Any], new: dict[str, Any], rows: np.ndarray) -> dict[str, Any]:
    """Reports whose `rows` are new; the others stay as they were when their episodes ended."""
    merged = dict(old)
    for name, column in new.items():
        if isinstance(column, dict):
            merged[name] = _merge(old.get(name, {}), column, rows)
        else:
            merged[name] = np.where(rows, column, old[name]) if name in old else column
    return merged
