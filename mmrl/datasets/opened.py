"""Which format a place holds."""

from __future__ import annotations

from pathlib import Path

from mmrl.datasets.base import Dataset
from mmrl.datasets.lerobot import layout
from mmrl.datasets.lerobot.reader import LeRobotDataset
from mmrl.datasets.minari import FILE, MinariDataset
from mmrl.datasets.robomimic import RobomimicDataset


def open_dataset(path: str | Path) -> Dataset:
    """The dataset at a folder or file, recognised by what is in it."""
    path = Path(path)
    if (path / layout.INFO).is_file():
        return LeRobotDataset(path)
    if path.name == FILE or (path / FILE).is_file() or (path / "data" / FILE).is_file():
        return MinariDataset(path)
    if path.is_file() and path.suffix in (".hdf5", ".h5"):
        return RobomimicDataset(path)
    if not path.exists():
        raise ValueError(f"{path}: no such folder or file")
    raise ValueError(
        f"{path}: not a dataset that can be read here; a LeRobotDataset v3.0 folder has {layout.INFO}, a Minari folder "
        f"has data/{FILE}, a robomimic dataset is one .hdf5 file"
    )
