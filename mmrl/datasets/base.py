"""Dataset of episodes, independent of the file format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mmrl.datasets.offline_episodes import OfflineEpisode

Statistics = dict[str, np.ndarray]
"""Statistics of one vector or camera: "min", "max", "mean", "std", "q01", "q99", each [D] or [C], and "count" [1]."""


@dataclass(frozen=True)
class Feature:
    """Type and shape of a column's value in one control step."""

    dtype: str  # "float32", "int64", ..., or "image" and "video" for cameras
    shape: tuple[int, ...]
    names: tuple[str, ...] | None = None  # of the dimensions

    @property
    def camera(self) -> bool:
        return self.dtype in ("image", "video")


class Dataset(ABC):
    """Episodes by index. Episodes are read one at a time, and camera images when they are indexed."""

    path: Path
    format: str
    fps: float | None  # control steps per second; None if the files do not state it
    features: dict[str, Feature]  # observations by name, and "action"
    contract: dict[str, Any] | None  # of the simulator that recorded it; None if the files do not state it

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def read(self, number: int) -> OfflineEpisode:
        """Read episode `number` without checking its values."""

    def __getitem__(self, number: int) -> OfflineEpisode:
        """Read episode `number` and refuse values that are not finite."""
        if not 0 <= number < len(self):
            raise IndexError(f"{self.path} has {len(self)} episodes, asked for {number}")
        return self.read(number).refuse_broken()

    def __iter__(self) -> Iterator[OfflineEpisode]:
        return (self[number] for number in range(len(self)))

    def check(self) -> None:
        """Refuse values of any episode that are not finite or larger than `LARGEST`. Images are not read."""
        for number in range(len(self)):
            self[number]

    def success(self, number: int) -> bool | None:
        """Whether the episode succeeded; None if unknown."""
        return self.read(number).success

    def lengths(self) -> list[int]:
        """Number of control steps of every episode."""
        return [len(self.read(number)) for number in range(len(self))]

    @abstractmethod
    def statistics(self) -> dict[str, Statistics]:
        """Statistics of "action" and of every observation, read from the files or computed from the episodes."""

    def close(self) -> None:
        """Close open files."""


def plain_name(key: str) -> str:
    """Remove the format's prefixes: observation.images.front becomes front, observation.state becomes state."""
    return key.removeprefix("observation.").removeprefix("images.")
