"""Import the optional packages pyarrow and h5py, with an error that names the command to install them."""

from __future__ import annotations

import importlib
from typing import Any


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
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        package = name.split(".")[0]
        raise ModuleNotFoundError(f"recorded datasets need {package}: pip install 'mmrl-lightning[data]'") from error
