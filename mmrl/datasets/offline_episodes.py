"""Offline episode: one row per control step, and its decisions for a policy that acts in chunks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mmrl.types import Ended

LARGEST = 1e9
"""A larger number is no action, observation or reward: float32 holds it to 64 units, and its square overflows soon."""


def unusable(rows: np.ndarray) -> np.ndarray:
    """Where rows [T, ...] are not finite or larger than `LARGEST`: indices [N, axes]; none of integers."""
    if not np.issubdtype(rows.dtype, np.floating):
        return np.empty((0, rows.ndim), np.int64)
    with np.errstate(invalid="ignore"):
        return np.argwhere(~(np.abs(rows) <= LARGEST))


@dataclass
class OfflineEpisode:
    """OfflineEpisode: an episode of a dataset with T control steps. Row t of `observations` precedes action t."""

    actions: np.ndarray  # float32 [T, A] (or int64 [T, 1]): what an imitator should do
    observations: dict[str, Any]  # [T, ...]: images uint8 [T, H, W, C], perhaps decoded when indexed; vectors float32
    instruction: str = ""
    rewards: np.ndarray | None = None  # float32 [T], reward of the control step; None if not recorded
    terminated: bool = False  # it ended by itself: nothing follows the last step
    truncated: bool = False  # it was cut off
    success: bool | None = None  # None if unknown
    seed: int | None = None  # of the initial state
    executed: np.ndarray | None = None  # float32 [T, A] what was really played, where noise was added to the actions
    where: str = "episode"  # file and episode, for messages
    info: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.terminated:
            self.truncated = False  # a terminal state is terminal however late it comes
        for name, rows in self.columns().items():
            if len(rows) != len(self):
                raise ValueError(f"{self.where}: {name} has {len(rows)} rows, the actions have {len(self)}")
        if not len(self):
            raise ValueError(f"{self.where}: an episode needs at least one control step")

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def ended(self) -> Ended:
        """Why it stopped, as an episode of a rollout says it."""
        return "done" if self.terminated else "time" if self.truncated else "cut"

    def columns(self) -> dict[str, Any]:
        """Everything that has one row per control step, by name."""
        rows = {"action": self.actions, **{f"observation {name}": rows for name, rows in self.observations.items()}}
        given = {"reward": self.rewards, "executed action": self.executed}
        return rows | {name: value for name, value in given.items() if value is not None}

    def refuse_broken(self) -> OfflineEpisode:
        """Itself, unless a number is not finite or larger than `LARGEST`."""
        for name, rows in self.columns().items():
            if isinstance(rows, np.ndarray) and len(broken := unusable(rows)):
                value = rows[tuple(broken[0])]
                said = f"{value:.4g}, larger than {LARGEST:g}," if np.isfinite(value) else "not finite"
                raise ValueError(
                    f"{self.where}: {name} is {said} at control step {broken[0][0]} (index {broken[0].tolist()}, "
                    f"{len(broken)} such numbers in all); leave the episode out or mend it"
                )
        return self

    def raw(self, step: int) -> dict[str, Any]:
        """The raw observation before control step `step`, in the format of a simulator."""
        seen = {name: rows[step] for name, rows in self.observations.items()}
        return {**seen, "instruction": self.instruction} if self.instruction else seen

    def decisions(self, chunk: int | None, stride: int | None = None) -> Iterator[Decision]:
        """Windows of `chunk` control steps, every `stride` of them.

        The last windows are filled up with the last action; `executed` says how many steps are real.

        Args:
            chunk: H, control steps per decision; None for policies that decide every control step without a chunk.
            stride: control steps between two decisions; None for `chunk`, as the episode would have been played.
        """
        size = 1 if chunk is None else chunk
        for start in range(0, len(self), stride or size):
            stop = min(start + size, len(self))
            output = self.actions[np.minimum(np.arange(start, start + size), len(self) - 1)]
            reward = 0.0 if self.rewards is None else float(self.rewards[start : start + (stride or size)].sum())
            yield Decision(self.raw(start), output[0] if chunk is None else output, stop - start, reward)


@dataclass(frozen=True)
class Decision:
    """One decision of an offline episode."""

    raw: dict[str, Any]  # the observation
    output: np.ndarray  # [H, A], or [A] without chunks
    executed: int  # control steps of it that were played
    reward: float  # sum until the next decision
