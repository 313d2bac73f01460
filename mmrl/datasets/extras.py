"""Import the optional packages pyarrow, h5py and protobuf, with an error that names the command to install them."""

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


def protobuf() -> Any:
    """Import google.protobuf with the modules that build message classes."""
    for name in ("descriptor_pb2", "descriptor_pool", "message_factory"):
        _need(f"google.protobuf.{name}")
    return _need("google.protobuf")


def _need(name: str) -> Any:
    return import_optional(name, "a recorded dataset")
