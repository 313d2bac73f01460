"""Episodes of offline datasets, with one row per control step, and their split into action chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mmrl.core.types import Ended

LARGEST = 1e9
"""Larger absolute values are refused: float32 stores 1e9 with a precision of 64, and squares soon overflow."""


def find_unusable(rows: np.ndarray) -> np.ndarray:
    """Find values of rows [T, ...] that are not finite or larger than `LARGEST`: indices [N, axes]."""
    if not np.issubdtype(rows.dtype, np.floating):
        return np.empty((0, rows.ndim), np.int64)
    with np.errstate(invalid="ignore"):
        return np.argwhere(~(np.abs(rows) <= LARGEST))


def split_instructions(texts: Sequence[str]) -> dict[str, Any]:
    """Return the fields `instruction` and `instructions` of an episode from the text of every control step [T]."""
    changes = len(set(texts)) > 1
    return {"instruction": texts[0] if texts else "", "instructions": tuple(texts) if changes else ()}


@dataclass
class OfflineEpisode:
    """An episode of a dataset with T control steps. Row t of `observations` is observed before action t."""

    actions: np.ndarray  # float32 [T, A] (or int64 [T, 1]): targets of imitation
    observations: dict[str, Any]  # [T, ...]: images uint8 [T, H, W, C] (an array or `Frames`), vectors float32
    instruction: str = ""  # at the first control step
    instructions: tuple[str, ...] = ()  # [T], where they change within the episode; empty: `instruction` throughout
    rewards: np.ndarray | None = None  # float32 [T], reward of the control step; None if not recorded
    terminated: bool = False  # the last step reached a terminal state
    truncated: bool = False  # a time limit ended it
    success: bool | None = None  # None if unknown
    seed: int | None = None  # of the initial state
    executed: np.ndarray | None = None  # float32 [T, A]: executed actions, if noise was added
    interventions: np.ndarray | None = None  # bool [T]: a human acted in place of the policy; None if not recorded
    final: dict[str, np.ndarray] | None = None  # observations after the last action; None if not recorded
    where: str = "episode"  # file and episode, for messages
    info: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.terminated:
            self.truncated = False  # terminated and truncated at once counts as terminated
        steps = {**self.columns(), **({"instructions": self.instructions} if self.instructions else {})}
        for name, rows in steps.items():
            if len(rows) != len(self):
                raise ValueError(f"{self.where}: {name} has {len(rows)} rows, the actions have {len(self)}")
        if not len(self):
            raise ValueError(f"{self.where}: an episode needs at least one control step")

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def texts(self) -> list[str]:
        """The instructions of the episode, each once, in their order."""
        return list(dict.fromkeys(self.instructions or (self.instruction,)))

    @property
    def ended(self) -> Ended:
        """Why the episode ended, as in `mmrl.core.types.Episode`."""
        return "done" if self.terminated else "time" if self.truncated else "cut"

    def columns(self) -> dict[str, Any]:
        """All arrays with one row per control step, by name."""
        rows = {"action": self.actions, **{f"observation {name}": rows for name, rows in self.observations.items()}}
        optional = {"reward": self.rewards, "executed action": self.executed, "intervention": self.interventions}
        return rows | {name: value for name, value in optional.items() if value is not None}

    def refuse_broken(self) -> OfflineEpisode:
        """Return the episode; raises a ValueError if a value is not finite or larger than `LARGEST`."""
        for name, rows in self.columns().items():
            if isinstance(rows, np.ndarray) and len(broken := find_unusable(rows)):
                value = rows[tuple(broken[0])]
                fault = f"{value:.4g}, larger than {LARGEST:g}," if np.isfinite(value) else "not finite"
                raise ValueError(
                    f"{self.where}: {name} is {fault} at control step {broken[0][0]} (index {broken[0].tolist()}, "
                    f"{len(broken)} such numbers in all); leave the episode out or mend it"
                )
        return self

    def raw(self, step: int) -> dict[str, Any]:
        """Observation before control step `step`, in the format of a simulator."""
        observation = {name: rows[step] for name, rows in self.observations.items()}
        text = self.instructions[step] if self.instructions else self.instruction
        return {**observation, "instruction": text} if text else observation

    def decisions(self, chunk: int | None, stride: int | None = None) -> Iterator[Decision]:
        """Yield windows of `chunk` control steps that begin every `stride` steps.

        Windows past the end repeat the last action; `Decision.executed` counts the steps without repeats.

        Args:
            chunk: H, control steps per decision; None for policies that return one action without a chunk.
            stride: control steps between two decisions; None for `chunk`.
        """
        size = 1 if chunk is None else chunk
        for start in range(0, len(self), stride or size):
            stop = min(start + size, len(self))
            output = self.actions[np.minimum(np.arange(start, start + size), len(self) - 1)]
            reward = 0.0 if self.rewards is None else float(self.rewards[start : start + (stride or size)].sum())
            yield Decision(self.raw(start), output[0] if chunk is None else output, stop - start, reward)


@dataclass(frozen=True)
class Decision:
    """One decision of an offline episode: observation and action chunk."""

    raw: dict[str, Any]  # the observation
    output: np.ndarray  # [H, A], or [A] without chunks
    executed: int  # control steps of the chunk that belong to the episode
    reward: float  # sum of rewards until the next decision
