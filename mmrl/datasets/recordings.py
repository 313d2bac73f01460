"""Open a recording of any format: episodes of demonstrations, or transitions for offline RL."""

from __future__ import annotations

from pathlib import Path

from mmrl.datasets.base import Dataset
from mmrl.datasets.formats import open_dataset
from mmrl.datasets.npz.dataset import NpzDataset


def open_recording(path: str | Path, statistics: bool = True) -> Dataset:
    """Open what `open_dataset` opens, or flat arrays in an .npz file.

    Args:
        path: folder or file of the dataset.
        statistics: refuse a broken meta/stats.json.
    """
    path = Path(path)
    return NpzDataset(path) if path.suffix == ".npz" and path.is_file() else open_dataset(path, statistics)
