"""Policies that answer the queries of a robot: of a run in this process, guided by the old chunk, or at a server."""

from __future__ import annotations

from typing import Any

import numpy as np

from mmrl.api.loaded_policy import LoadedPolicy
from mmrl.api.robots.inference import ChunkQuery
from mmrl.core.errors import ConfigError, check_at_least
from mmrl.core.types import Request, Sampling
from mmrl.engines.local import LocalEngine
from mmrl.policies.base import Policy
from mmrl.policies.remote.metadata import read_metadata
from mmrl.policies.remote.policy import RemotePolicy
from mmrl.rollouts.env.real_time_chunking import KNOWN, PREVIOUS, ContinuingEngine, soft_mask


class EnginePolicy:
    """A policy that is sampled by an engine in this process.

    Args:
        policy: with its weights; one that acts in chunks, or with single actions, which are chunks of one.
        sampling: how it chooses.
    """

    def __init__(self, policy: Policy, sampling: Sampling):
        if getattr(policy, "memory_dims", 0):
            raise ConfigError("this policy has a memory, which chunks that are asked ahead cannot carry; take another")
        self.policy, self.sampling = policy, sampling
        self._engine = LocalEngine()
        self._engine.sync(policy, 0)

    def __call__(self, query: ChunkQuery) -> np.ndarray:
        output = self._engine.sample([Request(query.observation, query.seed)], self.sampling)[0].output
        return np.atleast_2d(np.asarray(output, np.float32))


class GuidedPolicy:
    """A flow policy whose chunks begin as the chunk goes on that is being played: real-time chunking.

    The first d actions, which will be past when the chunk is there, are held to those of the old chunk, and the others
    less and less (`soft_mask`), by guidance of the denoising.
    Source: Black et al., "Real-Time Execution of Action Chunking Flow Policies", 2025, algorithm 1, equations 2 to 5,
    arXiv:2506.07339.

    Args:
        policy: with a flow head, whose chain predicts a velocity.
        sampling: how it chooses.
        limit: beta, most of the guidance.
    """

    def __init__(self, policy: Any, sampling: Sampling, limit: float = 5.0):
        check_at_least(0, "robot", limit=limit)
        if not hasattr(policy, "continue_chunks"):
            raise ConfigError(
                f"guide=true guides the denoising of a flow, but {type(policy).__name__} has none; leave guide out, or "
                "set blend=N to average the chunks"
            )
        self.policy, self.sampling, self.limit = policy, sampling, limit

    def __call__(self, query: ChunkQuery) -> np.ndarray:
        size, known = self.policy.chunk, query.previous is not None and len(query.previous) > 0
        previous = np.zeros((size, self.policy.action_dims), np.float32)
        executed = min(query.executed, size)
        if known:
            previous[: len(query.previous)] = query.previous  # type: ignore[arg-type]
        weights = soft_mask(size, min(query.delay, size - executed), executed)
        raw = {**query.observation, PREVIOUS: previous, KNOWN: np.array([float(known)], np.float32)}
        engine = ContinuingEngine(self.policy, weights, self.limit)
        return np.asarray(engine.sample([Request(raw, query.seed)], self.sampling)[0].output, np.float32)


def load_local(loaded: LoadedPolicy, guide: bool = False, limit: float = 5.0) -> EnginePolicy | GuidedPolicy:
    """The policy of a run in this process."""
    if guide:
        return GuidedPolicy(loaded.policy, loaded.sampling, limit)
    return EnginePolicy(loaded.policy, loaded.sampling)


def connect_server(url: str, token_file: str | None, action_dims: int, decode: str | None = None) -> EnginePolicy:
    """The policy at a policy server, of which whole chunks are played.

    Args:
        url: ws://host:port of `mmrl serve`, or of openpi's server, whose answers are played from their first step on.
        token_file: file with the server's token; None for the environment variable.
        action_dims: A of the robot.
        decode: how a server of `mmrl serve` chooses; None for its own default.
    """
    policy = RemotePolicy(url, action_dims, token_file=token_file, connections=1)
    metadata = policy.server.connect()
    policy.chunk = read_metadata(metadata, f"url={url}").chunk or 1
    stated = metadata.get("decode")
    default = stated if stated in ("sample", "argmax", "mean") else "mean"
    return EnginePolicy(policy, Sampling(decode=decode or default))  # type: ignore[arg-type]
