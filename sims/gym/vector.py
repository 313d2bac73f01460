"""Worlds stepped one after the other that can be saved and continued bit for bit."""

from __future__ import annotations

import io
import pickle
from typing import Any

import gymnasium
from gymnasium.vector import SyncVectorEnv

_BUFFERS = ("_env_obs", "_observations", "_rewards", "_terminations", "_truncations", "_autoreset_envs")


class GymVectorEnv(SyncVectorEnv):
    """gymnasium's synchronous vector environment, with its whole state as bytes."""

    def get_state(self) -> bytes:
        """Environments with their random streams, counters and physics, and what the next step depends on."""
        state = {"envs": self.envs, **{name: getattr(self, name) for name in _BUFFERS}}
        buffer = io.BytesIO()
        try:
            _EnvPickler(buffer).dump(state)
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            raise NotImplementedError(f"{self.envs[0]} cannot be saved: {error}") from error
        return buffer.getvalue()

    def set_state(self, state: bytes) -> None:
        """Continue from `get_state`. The bytes are a pickle: load only what you trust."""
        stored = pickle.loads(state)
        if len(stored["envs"]) != self.num_envs:
            raise ValueError(f"the saved simulator has {len(stored['envs'])} worlds, this one {self.num_envs}")
        for env in self.envs:
            env.close()
        for name, value in stored.items():
            setattr(self, name, value)


class _EnvPickler(pickle.Pickler):
    """Saves environments by their attributes: `EzPickle`, which many inherit, would only save how they were made."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, gymnasium.Env):
            return _blank, (type(obj),), obj.__dict__, None, None, _fill
        return NotImplemented


def _blank(kind: type[gymnasium.Env]) -> gymnasium.Env:
    return object.__new__(kind)


def _fill(env: gymnasium.Env, attributes: dict[str, Any]) -> None:
    env.__dict__.update(attributes)
