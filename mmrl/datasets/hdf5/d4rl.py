"""Read HDF5 files in D4RL's shape: all transitions in flat arrays, without the package d4rl."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mmrl.datasets.hdf5.dataset import HDF5Dataset, read_actions
from mmrl.datasets.offline_episodes import OfflineEpisode

_REMEDY = "write the file again with one entry per transition"
_ENDS = ("terminals", "timeouts")
_BLOCK = 2**14
"""Rows that are read at once: compressed files are decoded in pieces, and reading per episode would repeat that."""


class D4RLDataset(HDF5Dataset):
    """Dataset in flat arrays `observations` [N, D], `actions` [N, A], `rewards` [N], `terminals` [N], `timeouts` [N].

    An episode ends at a row whose `terminals` or `timeouts` is true; either array may be absent, not both. Of
    `next_observations` [N, D], which may be absent too, the last row of an episode is its final observation. Rows after
    the last end are an episode that was cut off. Source: Fu et al., "D4RL", 2020, arXiv:2004.07219.

    Args:
        path: the .hdf5 file.
    """

    format = "D4RL HDF5"
    fps = None

    def __init__(self, path: str | Path):
        self._blocks: dict[str, tuple[int, np.ndarray]] = {}  # by array: its first row, and the rows
        super().__init__(path)

    @staticmethod
    def matches(path: Path) -> bool:
        """Whether a file has flat arrays in its root; a file that cannot be read has none."""
        dataset = HDF5Dataset.__new__(HDF5Dataset)
        dataset.path, dataset._file = path, None
        try:
            file = dataset.file
            return any(hasattr(file.get(name), "shape") for name in ("observations", "actions", *_ENDS))
        except ValueError:
            return False
        finally:
            dataset.close()

    def find(self) -> list[str]:
        for name in ("observations", "actions"):
            if not getattr(self.need(self.file, name), "shape", ()):
                raise ValueError(f"{self.path}: {name!r} is a group or a single value, not an array; {_REMEDY}")
        rows = len(self.file["actions"])
        for name in ("observations", "rewards", *_ENDS, "next_observations"):
            if name in self.file and (shape := getattr(self.file[name], "shape", ()))[:1] != (rows,):
                raise ValueError(f"{self.path}: {name} has shape {list(shape)}, there are {rows} actions; {_REMEDY}")
        self.arrays = frozenset(self.file)
        present = [name for name in _ENDS if name in self.arrays]
        if not present:
            raise ValueError(
                f"{self.path}: neither 'terminals' nor 'timeouts' is there, so no episode has an end; add `terminals` "
                "(a terminal state was reached) and `timeouts` (a time limit ended the episode), true in the last row"
            )
        self.ends = {name: self._read_flags(name, rows) for name in present}
        last = np.flatnonzero(np.logical_or.reduce(list(self.ends.values())))
        if not len(last):
            raise ValueError(
                f"{self.path}: {' and '.join(present)} are false in all {rows} rows, so no episode has an end; set "
                "them in the last row of every episode"
            )
        stops = [*(last + 1).tolist(), *([rows] if last[-1] + 1 < rows else [])]
        self.bounds = list(zip([0, *stops[:-1]], stops))
        return [f"episode {number}" for number in range(len(self.bounds))]

    def _read_flags(self, name: str, rows: int) -> np.ndarray:
        """A column of truth values [N]."""
        values = np.asarray(self.file[name][:])
        if values.size != rows:
            raise ValueError(f"{self.path}: {name} has shape {list(values.shape)}, there are {rows} rows; {_REMEDY}")
        values = values.reshape(rows)
        if len(wrong := np.flatnonzero((values != 0) & (values != 1))):
            raise ValueError(f"{self.path}: {name} is {values[wrong[0]]} in row {wrong[0]}; it must be 0 or 1")
        return values.astype(bool)

    def read(self, number: int) -> OfflineEpisode:
        start, stop = self.bounds[number]
        where = f"{self.path} episode {number} (rows {start} to {stop - 1})"
        following = self._rows("next_observations", start, stop) if "next_observations" in self.arrays else None
        rewards = self._rows("rewards", start, stop) if "rewards" in self.arrays else None
        return OfflineEpisode(
            actions=self._rows("actions", start, stop),
            observations={"state": self._rows("observations", start, stop)},
            rewards=None if rewards is None else rewards.reshape(-1),
            terminated=self._ends("terminals", stop - 1),
            truncated=self._ends("timeouts", stop - 1),
            final=None if following is None else {"state": following[-1]},
            where=where,
        )

    def _ends(self, name: str, row: int) -> bool:
        return name in self.ends and bool(self.ends[name][row])

    def _rows(self, name: str, start: int, stop: int) -> np.ndarray:
        """Rows of an array as float32 (integers of actions stay), from the block that was read last if they are in."""
        first, block = self._blocks.get(name, (0, None))
        if block is None or start < first or stop > first + len(block):
            first, block = start, self._read_block(self.file[name], start, max(stop, start + _BLOCK))
            self._blocks[name] = first, block
        return block[start - first : stop - first]

    def _read_block(self, node: Any, start: int, stop: int) -> np.ndarray:
        if node.name == "/actions":
            return read_actions(node, slice(start, stop))
        if node.dtype.kind not in "biuf":
            raise ValueError(f"{self.path}{node.name}: holds {node.dtype}, not numbers; {_REMEDY}")
        rows = node[start:stop]
        return rows if rows.dtype == np.uint8 else rows.astype(np.float32, copy=False)

    def success(self, number: int) -> bool | None:
        return None

    def lengths(self) -> list[int]:
        return [stop - start for start, stop in self.bounds]

    def close(self) -> None:
        super().close()
        self._blocks = {}
