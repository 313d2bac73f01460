"""pyarrow and h5py, for those who have them."""

from __future__ import annotations

import importlib
from typing import Any


def arrow() -> Any:
    """The module pyarrow, with pyarrow.compute."""
    _need("pyarrow.compute")
    return _need("pyarrow")


def parquet() -> Any:
    """The module pyarrow.parquet."""
    return _need("pyarrow.parquet")


def hdf5() -> Any:
    """The module h5py."""
    return _need("h5py")


def _need(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        package = name.split(".")[0]
        raise ModuleNotFoundError(f"recorded datasets need {package}: pip install 'mmrl[data]'") from error
