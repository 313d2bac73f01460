"""Chunks of actions that arrive while others are played: which control step plays which action."""

from __future__ import annotations

import numpy as np

from mmrl.core.errors import check_at_least


class ChunkQueue:
    """The actions of the control steps to come, joined from chunks.

    Control steps are numbered from the start of the episode. A chunk [H, A] that was computed from the observation of
    control step o has the actions of steps o to o + H - 1. When it arrives at step k, those before k are dropped, since
    other actions were played there. The next `blend` steps are w new + (1 - w) old with w = 1 / (blend + 1), 2 / (blend
    + 1), ..., as far as the old chunk reaches; from there on the new chunk is played alone. With `blend=0` it replaces
    the old one.

    Args:
        blend: control steps over which the old chunk fades into the new one.
    """

    def __init__(self, blend: int = 0):
        check_at_least(0, "robot", blend=blend)
        self.blend = blend
        self.origin: int | None = None  # control step of the observation of the newest chunk; None without a chunk
        self._first, self._actions = 0, np.zeros((0, 0), np.float32)  # [R, A] from control step `_first` on

    def join(self, chunk: np.ndarray, origin: int, step: int) -> int:
        """Add a chunk [H, A] that arrives at control step `step`; returns how many of its actions were too late.

        A chunk that is too late as a whole changes nothing.
        """
        past = step - origin
        if past >= len(chunk):
            return len(chunk)
        new, old = np.array(chunk[past:], np.float32), self.remaining(step)
        count = min(self.blend, len(old), len(new))
        if count:
            weights = (np.arange(count, dtype=np.float32)[:, None] + 1) / (self.blend + 1)
            new[:count] = weights * new[:count] + (1 - weights) * old[:count]
        self.origin, self._first, self._actions = origin, step, new
        return past

    def remaining(self, step: int) -> np.ndarray:
        """The actions [R, A] of control step `step` and those after it."""
        return self._actions[max(step - self._first, 0) :]

    def action(self, step: int) -> np.ndarray | None:
        """The action [A] of a control step; None if no chunk reaches it."""
        rest = self.remaining(step)
        return rest[0] if len(rest) else None

    def clear(self) -> None:
        """Forget all chunks."""
        self.origin, self._actions = None, self._actions[:0]
