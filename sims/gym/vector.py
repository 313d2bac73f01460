"""Worlds stepped one after the other that can be saved and continued bit for bit."""

from __future__ import annotations

import io
import pickle
from typing import Any

import gymnasium
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

_BUFFERS = ("_env_obs", "_observations", "_rewards", "_terminations", "_truncations", "_autoreset_envs")


class GymVectorEnv(SyncVectorEnv):
    """gymnasium's synchronous vector environment of guarded worlds, with its whole state as a tensor.

    With autoreset disabled a world that ended keeps still and repeats its flags until it is reset.
    """

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        if self.autoreset_mode is AutoresetMode.DISABLED:
            self._autoreset_envs[:] = False  # the guards keep ended worlds still; without them this would be refused
        return super().step(actions)

    def state_dict(self) -> dict[str, Any]:
        """Environments with their random streams, counters and physics, and what the next step depends on."""
        buffer = io.BytesIO()
        try:
            _EnvPickler(buffer).dump({name: getattr(self, name) for name in ("envs", *_BUFFERS)})
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            raise NotImplementedError(f"{self.envs[0]} cannot be saved: {error}") from error
        return {"worlds": torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state. It holds a pickle: load only what you trust."""
        stored = pickle.loads(state["worlds"].numpy().tobytes())
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
