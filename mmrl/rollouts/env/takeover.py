"""When a scripted human takes over from a policy."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mmrl.core.errors import check_at_least


def sum_distances(scores: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    """The distance to the goal [n] of a simulator: the sum of its scores whose names end in `distance_m`, metres.

    Args:
        scores: as the simulator reports them after every decision, [n] each.
        name: of the simulator, for the error.
    """
    distances = [np.asarray(column, np.float64) for key, column in scores.items() if key.endswith("distance_m")]
    if not distances:
        raise ValueError(
            f"sim {name!r} reports no score that ends in distance_m (it has {', '.join(scores) or 'none'}), by which a "
            "scripted human sees that a policy does not get on; take sim=reach or sim=push"
        )
    return np.sum(distances, axis=0)


class TakeoverRule:
    """A scripted human takes over where the distance to the goal has stopped getting smaller.

    Each environment has the smallest distance since its episode began or its human let go. Where no control step of the
    last `patience` made that smaller by more than `margin`, the human acts for `duration` control steps.

    Args:
        patience: control steps without progress before the human takes over.
        duration: control steps that the human acts.
        margin: by which a distance has to be smaller to be progress, in its unit.
    """

    def __init__(self, patience: int = 10, duration: int = 5, margin: float = 0.005):
        check_at_least(1, "takeover", patience=patience, duration=duration)
        check_at_least(0, "takeover", margin=margin)
        self.patience, self.duration, self.margin = patience, duration, margin
        self.begin(0)

    def begin(self, num_envs: int) -> None:
        """Begin with so many environments, each at the start of an episode."""
        self._smallest = np.full(num_envs, np.inf)
        self._idle = np.zeros(num_envs, np.int64)  # control steps without progress
        self._human = np.zeros(num_envs, np.int64)  # control steps that the human still acts

    def reset(self, rows: np.ndarray) -> None:
        """Forget the episodes of some environments, bool or indices."""
        self._smallest[rows], self._idle[rows], self._human[rows] = np.inf, 0, 0

    def state_dict(self) -> dict[str, np.ndarray]:
        return {name: getattr(self, f"_{name}").copy() for name in ("smallest", "idle", "human")}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        for name, column in state.items():
            setattr(self, f"_{name}", column.copy())

    def decide(self, distance: np.ndarray) -> np.ndarray:
        """Whether the human acts in the next control step, bool [n], given the distances [n] before it."""
        progress = distance < self._smallest - self.margin
        self._idle = np.where(progress, 0, self._idle + 1)
        self._smallest = np.where(progress, distance, self._smallest)
        self._human = np.where((self._human == 0) & (self._idle >= self.patience), self.duration, self._human)
        acts = self._human > 0
        self._human = self._human - acts
        # the policy that gets control back has as much patience as at the start of an episode
        self.reset(acts & (self._human == 0))
        return acts
