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
"""Of one vector or camera: "min", "max", "mean", "std", "q01", "q99", each [D] or [C], and "count" [1]."""


@dataclass(frozen=True)
class Feature:
    """What one column holds per control step."""

    dtype: str  # "float32", "int64", ..., or "image" and "video" for cameras
    shape: tuple[int, ...]
    names: tuple[str, ...] | None = None  # of the dimensions

    @property
    def camera(self) -> bool:
        return self.dtype in ("image", "video")


class Dataset(ABC):
    """Episodes by number; one at a time is read from the files, and cameras only where they are looked at."""

    path: Path
    format: str
    fps: float | None  # control steps per second; None where the files do not say
    features: dict[str, Feature]  # observations by name, and "action"
    contract: dict[str, Any] | None  # of the simulator that it was recorded in; None where the files do not say

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def read(self, number: int) -> OfflineEpisode:
        """Episode `number` as its files have it."""

    def __getitem__(self, number: int) -> OfflineEpisode:
        """Episode `number`; refused where it holds numbers that are not finite."""
        if not 0 <= number < len(self):
            raise IndexError(f"{self.path} has {len(self)} episodes, asked for {number}")
        return self.read(number).refuse_broken()

    def __iter__(self) -> Iterator[OfflineEpisode]:
        return (self[number] for number in range(len(self)))

    def check(self) -> None:
        """Refuse numbers that are not finite or too large to be meant, in all episodes. Images are not read."""
        for number in range(len(self)):
            self[number]

    def success(self, number: int) -> bool | None:
        """Whether the episode succeeded; None if unknown."""
        return self.read(number).success

    def lengths(self) -> list[int]:
        """Control steps of every episode."""
        return [len(self.read(number)) for number in range(len(self))]

    @abstractmethod
    def statistics(self) -> dict[str, Statistics]:
        """Of "action" and every observation, as the files state it, or from the episodes where the format does not."""

    def close(self) -> None:
        """Give open files back."""


def plain_name(key: str) -> str:
    """A column of a file as policies call it: observation.images.front is front, observation.state is state."""
    return key.removeprefix("observation.").removeprefix("images.")
