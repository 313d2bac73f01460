"""Detect diverged MuJoCo simulations, which MuJoCo resets silently."""

from __future__ import annotations

from typing import Any

import gymnasium


class Diverged(gymnasium.Wrapper):
    """Raises where MuJoCo warns of a position, velocity or acceleration that is not finite or beyond 1e10.

    MuJoCo then resets the environment in the middle of the episode and only counts a warning; what follows belongs to
    no episode.

    Args:
        env: a MuJoCo environment of gymnasium, whose `unwrapped` has `data`.
    """

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        from mujoco import mjtWarning

        kinds = (mjtWarning.mjWARN_BADQPOS, mjtWarning.mjWARN_BADQVEL, mjtWarning.mjWARN_BADQACC)  # in a row
        self._first, self._last = min(map(int, kinds)), max(map(int, kinds))
        self._simulated: Any = env.unwrapped  # looked up once: every wrapper in between asks the next

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        out = self.env.step(action)
        if any(self._simulated.data.warning.number.tolist()[self._first : self._last + 1]):  # faster than with numpy
            raise FloatingPointError("the MuJoCo simulation diverged and started over")
        return out


def add_divergence_check(env: gymnasium.Env) -> gymnasium.Env:
    """Wrap the environment with the divergence check if it is simulated by MuJoCo."""
    return Diverged(env) if hasattr(getattr(env.unwrapped, "data", None), "warning") else env
