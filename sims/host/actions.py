"""Actions of control policies: a number, several numbers, or a vector of real numbers within bounds."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from gymnasium import spaces

log = logging.getLogger(__name__)


class SpaceError(ValueError):
    """A space that no control policy reads or acts in."""


class ActionReader:
    """Converts a policy's action to the environment's.

    Args:
        space: of the environment's action.
    """

    def __init__(self, space: spaces.Space):
        self._target = space
        self.blocks: list = []
        """How many actions each number of a discrete action has."""
        if isinstance(space, spaces.Discrete):
            self.space: spaces.Space = spaces.Discrete(int(space.n))
            self.blocks = [int(space.n)]
        elif isinstance(space, spaces.MultiDiscrete):
            self.blocks = [int(n) for n in np.ravel(space.nvec)]
            self.space = spaces.MultiDiscrete(self.blocks)
        elif isinstance(space, spaces.MultiBinary):
            self.blocks = [2] * int(np.prod(space.shape))
            self.space = spaces.MultiDiscrete(self.blocks)
        elif isinstance(space, spaces.Box):
            self.space = _bounded_vector(space)
        else:
            raise SpaceError(
                f"the actions {space} are of the kind {type(space).__name__}; actions can be Discrete, MultiDiscrete, "
                "MultiBinary or a bounded Box: flatten them in a wrapper (gymnasium.ActionWrapper)"
            )

    @property
    def mask_size(self) -> int:
        """Entries of a mask of legal actions; 0 where actions are real numbers."""
        return sum(self.blocks)

    def decode(self, action: Any) -> Any:
        """The action of the environment."""
        target = self._target
        if isinstance(target, spaces.Discrete):
            return int(target.start) + int(action)
        if isinstance(target, spaces.MultiBinary):
            return np.asarray(action, target.dtype).reshape(target.shape)
        if isinstance(target, spaces.MultiDiscrete):
            start = getattr(target, "start", 0)
            return (np.asarray(action).reshape(target.shape) + start).astype(target.dtype)
        values = np.asarray(action).reshape(target.shape)
        if target.dtype.kind in "iub":
            values = np.clip(np.rint(values), target.low, target.high)
        return values.astype(target.dtype)


def _bounded_vector(space: spaces.Box) -> spaces.Box:
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise SpaceError(
            f"the actions {space} have no finite bounds; give the box low and high, in the environment or by a wrapper"
        )
    if space.dtype.kind in "iub":
        log.warning("the actions %s are whole numbers: the policy's real numbers are rounded to the nearest", space)
        return spaces.Box(space.low.ravel().astype(np.float32), space.high.ravel().astype(np.float32))
    return space if len(space.shape) == 1 else spaces.Box(space.low.ravel(), space.high.ravel(), dtype=space.dtype.type)
