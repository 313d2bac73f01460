"""Read .npz files of flat arrays: OGBench's, and D4RL's names in NumPy's format."""

from __future__ import annotations

from typing import Any

import numpy as np

from mmrl.datasets.hdf5.d4rl import D4RLDataset
from mmrl.datasets.npz.arrays import NpzFile
from mmrl.datasets.offline_episodes import OfflineEpisode


class NpzDataset(D4RLDataset):
    """Dataset of flat arrays in an .npz file, one row per control step.

    The names are D4RL's: `observations`, `actions`, `rewards`, `terminals`, `timeouts`, `next_observations`. A file
    with `terminals` alone, without rewards, is OGBench's: they mark the last row of every trajectory, which no terminal
    state ends, and the observation of that row is its final one. Pictures uint8 [N, H, W, C] are the observation
    "image", everything else is "state"; other arrays, such as `qpos` and `qvel`, are not read.
    Source: Park et al., "OGBench", 2024, arXiv:2410.20092, and the files that it publishes.

    Args:
        path: the .npz file.
    """

    format = "NumPy .npz"

    @property
    def file(self) -> Any:
        if self._file is None:
            self._file = NpzFile(self.path)
        return self._file

    def find(self) -> list[str]:
        names = super().find()
        if set(self.ends) == {"terminals"} and "rewards" not in self.arrays:
            self.ends = {"timeouts": self.ends["terminals"]}
        return names

    def read(self, number: int) -> OfflineEpisode:
        episode = super().read(number)
        node = self.file["observations"]
        if node.dtype == np.uint8 and len(node.shape) == 4:
            episode.observations = {"image": episode.observations["state"]}
            episode.final = None if episode.final is None else {"image": episode.final["state"]}
        return episode

    def _rows(self, name: str, start: int, stop: int) -> np.ndarray:
        """Rows of an array, which reads ahead by itself."""
        return self._read_block(self.file[name], start, stop)
