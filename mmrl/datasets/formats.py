"""Recognise the format of a dataset."""

from __future__ import annotations

from pathlib import Path

from mmrl.datasets.base import Dataset
from mmrl.datasets.hdf5.d4rl import D4RLDataset
from mmrl.datasets.hub import locate_dataset
from mmrl.datasets.lerobot import layout
from mmrl.datasets.lerobot.reader import LeRobotDataset
from mmrl.datasets.minari import FILE, MinariDataset
from mmrl.datasets.npz.dataset import NpzDataset
from mmrl.datasets.robomimic import RobomimicDataset


def open_dataset(path: str | Path, statistics: bool = True) -> Dataset:
    """Open a LeRobot, Minari, robomimic, D4RL or OGBench dataset; the format is recognised by its files.

    Args:
        path: folder or file of the dataset, or the hub id of a LeRobotDataset.
        statistics: refuse a broken meta/stats.json.
    """
    path = locate_dataset(path)
    if (path / layout.INFO).is_file():
        return LeRobotDataset(path, statistics)
    if path.name == FILE or (path / FILE).is_file() or (path / "data" / FILE).is_file():
        return MinariDataset(path)
    if path.is_file() and path.suffix in (".hdf5", ".h5"):
        return D4RLDataset(path) if D4RLDataset.matches(path) else RobomimicDataset(path)
    if path.is_file() and path.suffix == ".npz":
        return NpzDataset(path)
    raise ValueError(
        f"{path}: not a dataset that can be read here; give another place: a LeRobotDataset v3.0 folder has "
        f"{layout.INFO}, a Minari folder has data/{FILE}, a robomimic dataset is one .hdf5 file, and so are "
        "D4RL's flat arrays, which may also be one .npz file"
    )
