"""What HDF5 formats have in common: an open file, groups of episodes, observations in nested groups."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from mmrl.datasets.base import Dataset, Feature, Statistics
from mmrl.datasets.extras import hdf5
from mmrl.datasets.frames import Stored
from mmrl.datasets.statistics import measured

_TOLD = ("instruction", "mission", "language_instruction", "task")


class HDF5Dataset(Dataset):
    """Episodes that are groups of one HDF5 file, opened at the first look.

    Args:
        path: of the file.
    """

    contract = None

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._file: Any = None
        self.groups = self.find()
        if not self.groups:
            raise ValueError(f"{self.path}: no episodes in it")
        first = self.read(0)
        self.features = {name: described(rows) for name, rows in first.observations.items()}
        self.features["action"] = described(first.actions)

    def find(self) -> list[str]:
        """The groups of the file that are episodes, in order."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.groups)

    def statistics(self) -> dict[str, Statistics]:
        return measured(self)

    @property
    def file(self) -> Any:
        if self._file is None:
            try:
                self._file = hdf5().File(self.path, "r")
            except OSError as error:
                raise ValueError(f"{self.path}: not a readable HDF5 file ({error}); copy it again") from error
        return self._file

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_file": None}

    def need(self, group: Any, name: str) -> Any:
        """A dataset or group of an episode; refused by name where it is missing."""
        if name not in group:
            raise ValueError(f"{self.path}{group.name}: {name!r} is missing; it has {sorted(group)}")
        return group[name]


def attributes(group: Any, name: str) -> dict[str, Any]:
    """A JSON attribute of a group; empty where there is none."""
    text = group.attrs.get(name)
    return json.loads(text) if text is not None else {}


def observed(node: Any, count: int, prefix: str = "") -> tuple[dict[str, Any], str]:
    """Rows [count, ...] by dotted name, and the instruction where one of them is text.

    Rows beyond `count`, such as what was seen after the last action, are left out. A dataset without a name is "state".
    """
    if not hasattr(node, "keys"):
        name = prefix or "state"
        if node.dtype.kind in "OS":
            first = node[0]
            return {}, first.decode() if isinstance(first, bytes) else str(first)
        if node.dtype == np.uint8 and node.ndim == 4:
            return {name: Stored(node) if len(node) == count else node[:count]}, ""
        rows = node[:count]
        return {name: rows.astype(np.float32) if rows.dtype == np.float64 else rows}, ""
    seen: dict[str, Any] = {}
    texts: dict[str, str] = {}
    for name in node:
        rows, text = observed(node[name], count, f"{prefix}.{name}" if prefix else name)
        seen |= rows
        if text:
            texts[name] = text
    named = [texts[name] for name in _TOLD if name in texts]
    return seen, (named or list(texts.values()) or [""])[0]


def described(rows: Any) -> Feature:
    """The feature that rows [T, ...] are."""
    camera = rows.dtype == np.uint8 and len(rows.shape) == 4
    return Feature("image" if camera else str(rows.dtype), tuple(rows.shape[1:]) or (1,))


def actions_of(node: Any) -> np.ndarray:
    """Actions [T, A]: float32, or integers as they are; [T] becomes [T, 1]."""
    rows = node[:]
    rows = rows.astype(np.float32) if rows.dtype.kind == "f" else rows
    return rows[:, None] if rows.ndim == 1 else rows
