"""Import the optional packages pyarrow and h5py, with an error that names the command to install them."""

from __future__ import annotations

from typing import Any

from mmrl.core.installation.optional_packages import import_optional


def arrow() -> Any:
    """Import pyarrow and pyarrow.compute; returns pyarrow."""
    _need("pyarrow.compute")
    return _need("pyarrow")


def parquet() -> Any:
    """Import pyarrow.parquet."""
    return _need("pyarrow.parquet")


def hdf5() -> Any:
    """Import h5py."""
    return _need("h5py")


def _need(name: str) -> Any:
    return import_optional(name, "a recorded dataset")
