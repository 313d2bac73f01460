"""Common code of HDF5 formats: an open file, one group per episode, observations in nested groups."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from mmrl.core.errors import is_user_error
from mmrl.datasets.base import Dataset, Feature, Statistics
from mmrl.datasets.extras import hdf5
from mmrl.datasets.frames import HDF5Frames
from mmrl.datasets.hdf5.structure import check_hdf5
from mmrl.datasets.offline_episodes import OfflineEpisode
from mmrl.datasets.statistics import compute_statistics
from mmrl.files.strict_json import kind, need_object, parse_json, quote

_REMEDY = "copy the file again from its source, or mend it"
_WIDEST = 10**6
"""Numbers of one control step, images aside; a bomb of zeros can state any."""

_TOLD = ("instruction", "mission", "language_instruction", "task")


class HDF5Dataset(Dataset):
    """Dataset in one HDF5 file with a group per episode; the file is opened at the first access.

    Args:
        path: path of the file.
    """

    contract = None

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._file: Any = None
        with name_place(str(self.path)):
            self.groups = self.find()
        if not self.groups:
            raise ValueError(f"{self.path}: no episodes in it; {_REMEDY}")
        first = self.read(0)
        self.features = {name: infer_feature(rows) for name, rows in first.observations.items()}
        self.features["action"] = infer_feature(first.actions)

    def find(self) -> list[str]:
        """Names of the groups that hold an episode, in order."""
        raise NotImplementedError

    def read_group(self, group: Any, where: str) -> OfflineEpisode:
        """Read the episode of a group; `where` names it in error messages."""
        raise NotImplementedError

    def read(self, number: int) -> OfflineEpisode:
        where = f"{self.path} {self.groups[number]}"
        with name_place(where):
            return self.read_group(self.root[self.groups[number]], where)

    @property
    def root(self) -> Any:
        """The group (or file) that contains the groups of the episodes."""
        return self.file

    def __len__(self) -> int:
        return len(self.groups)

    def statistics(self) -> dict[str, Statistics]:
        return compute_statistics(self)

    @property
    def file(self) -> Any:
        if self._file is None:
            check_hdf5(self.path, _REMEDY)
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
        """Return a member of a group; raises a ValueError that names it if it is missing."""
        if not hasattr(group, "keys"):
            raise ValueError(f"{self.path}{group.name}: is an array, not a group that has {name!r}; {_REMEDY}")
        if group.get(name) is None:
            raise ValueError(f"{self.path}{group.name}: {name!r} is missing; it has {quote(sorted(group))}; {_REMEDY}")
        return group[name]


@contextmanager
def name_place(where: str) -> Iterator[None]:
    """Convert an error of the HDF5 library to one that names the file and the episode."""
    try:
        yield
    except Exception as error:
        if is_user_error(error):
            raise
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ValueError(f"{where}: cannot be read ({reason}); {_REMEDY}") from error


def read_attribute(group: Any, name: str) -> dict[str, Any]:
    """Parse a JSON attribute of a group; an empty dict if it is absent."""
    text, place = group.attrs.get(name), f"{group.file.filename}{group.name}: attribute {name!r}"
    if text is None:
        return {}
    if not isinstance(text, str | bytes):
        raise ValueError(f"{place} is {kind(text)}, not JSON; {_REMEDY}")
    return need_object(parse_json(text, place, _REMEDY, finite=False), place, _REMEDY)


def read_observations(node: Any, count: int, prefix: str = "") -> tuple[dict[str, Any], list[str]]:
    """Read observations [count, ...] by dotted name, and the instructions [count] if a member is text, else [].

    Rows after `count`, such as the observation after the last action, are dropped. An array without a name is "state".
    """
    if not hasattr(node, "keys"):
        name, place = prefix or "state", f"{node.file.filename}{node.name}"
        if not node.shape or len(node) < count:
            raise ValueError(f"{place}: has shape {node.shape}, there are {count} actions; {_REMEDY}")
        if node.dtype.kind not in "biufOS":
            raise ValueError(f"{place}: holds {node.dtype}, not numbers; {_REMEDY}")
        if node.dtype.kind in "OS":
            return {}, [text.decode() if isinstance(text, bytes) else str(text) for text in node[:count]]
        if node.dtype == np.uint8 and node.ndim == 4:
            frames = HDF5Frames(node, place, _REMEDY)
            return {name: frames if len(node) == count else node[:count]}, []
        _check_width(node, place)
        rows = node[:count]
        return {name: rows.astype(np.float32) if rows.dtype == np.float64 else rows}, []
    observations: dict[str, Any] = {}
    texts: dict[str, list[str]] = {}
    for name in node:
        rows, lines = read_observations(node[name], count, f"{prefix}.{name}" if prefix else name)
        observations |= rows
        if any(lines):
            texts[name] = lines
    instructions = [texts[name] for name in _TOLD if name in texts]
    return observations, (instructions or list(texts.values()) or [[]])[0]


def read_final(node: Any, row: int, prefix: str = "") -> dict[str, np.ndarray] | None:
    """Read row `row` of the observations, by dotted name; None if an array ends before it. Texts are left out."""
    if not hasattr(node, "keys"):
        if not node.shape or len(node) <= row:
            return None
        if node.dtype.kind in "OS":
            return {}
        value = np.asarray(node[row])
        return {prefix or "state": value.astype(np.float32) if value.dtype == np.float64 else value}
    final: dict[str, np.ndarray] = {}
    for name in node:
        part = read_final(node[name], row, f"{prefix}.{name}" if prefix else name)
        if part is None:
            return None
        final |= part
    return final


def infer_feature(rows: Any) -> Feature:
    """Derive the type and shape of one step from rows [T, ...]."""
    camera = rows.dtype == np.uint8 and len(rows.shape) == 4
    return Feature("image" if camera else str(rows.dtype), tuple(rows.shape[1:]) or (1,))


def read_actions(node: Any, part: slice = slice(None)) -> np.ndarray:
    """Read actions [T, A], as float32 or as the integers of the file; [T] becomes [T, 1]. Of all rows, or of a part."""
    place = f"{node.file.filename}{node.name}"
    if hasattr(node, "keys") or node.dtype.kind not in "biuf" or len(node.shape) not in (1, 2):
        text = "a group" if hasattr(node, "keys") else f"{node.dtype} {list(node.shape)}"
        raise ValueError(f"{place}: is {text}; actions must be numbers [steps, dimensions]; {_REMEDY}")
    _check_width(node, place)
    rows = node[part]
    if not rows.size:
        raise ValueError(f"{place}: has shape {list(rows.shape)}; an episode needs at least one action; {_REMEDY}")
    rows = rows.astype(np.float32) if rows.dtype.kind == "f" else rows
    return rows[:, None] if rows.ndim == 1 else rows


def _check_width(node: Any, place: str) -> None:
    if (width := math.prod(node.shape[1:])) > _WIDEST:
        raise ValueError(f"{place}: {width:,} numbers in a control step, more than {_WIDEST:,}; {_REMEDY}")
