"""Encode and decode messages of policy servers: msgpack with numpy arrays, in openpi's wire format."""

from __future__ import annotations

import math
import re
from types import ModuleType
from typing import Any

import numpy as np

PROTOCOL = {"name": "mmrl", "version": 1}
"""Entry "protocol" of the metadata of `mmrl serve`: such a server also reads the two keys below."""
SEED, SAMPLING = "mmrl/seed", "mmrl/sampling"
"""Keys of a request beside its observations: 64-bit seed of its draws, and the fields of `mmrl.core.types.Sampling`."""

_DTYPE = re.compile(r"[<>|=]?[biuf](1|2|4|8)")
"""Booleans and numbers of at most 8 bytes; object, structured and text dtypes are refused."""
_MAX_AXES = 16
_MOST_ENTRIES = 100_000  # of a list or a map; numbers are sent as arrays


class WireError(ValueError):
    """A message that is no msgpack, or holds an array whose dtype, shape and data do not fit."""


def pack(value: Any) -> bytes:
    """Encode plain values and numpy arrays as one message.

    An array is the map {b"__ndarray__": True, b"data": bytes, b"dtype": "<f4", b"shape": [...]}, a numpy scalar the map
    {b"__npgeneric__": True, b"data": number, b"dtype": "<f4"}.
    Source: openpi-client 0.1.2, msgpack_numpy.py.

    Raises:
        TypeError: a value that the format does not have, such as an array of objects.
    """
    return _msgpack().packb(value, default=_encode)


def unpack(message: bytes) -> Any:
    """Decode one message; arrays are writable copies in the machine's byte order.

    Raises:
        WireError: the message is malformed.
    """
    try:
        return _msgpack().unpackb(
            message,
            object_hook=_decode,
            ext_hook=_refuse_extension,
            max_array_len=_MOST_ENTRIES,
            max_map_len=_MOST_ENTRIES,
        )
    except WireError:
        raise
    except ModuleNotFoundError:
        raise
    except Exception as error:  # of msgpack: truncated, too deep, no UTF-8, a key that is no text
        raise WireError(f"not a msgpack message: {type(error).__name__}: {error}") from error


PACKAGES = ("websockets", "msgpack")
"""Optional packages of policy servers and of their clients."""


def _msgpack() -> ModuleType:
    import msgpack  # not at the top: configurations name the remote policy where the extra is not installed

    return msgpack


def _encode(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        if not _DTYPE.fullmatch(value.dtype.str):
            raise TypeError(f"arrays of dtype {value.dtype} cannot be sent; convert them to numbers")
        if isinstance(value, np.ndarray):
            data = {b"data": value.tobytes(), b"dtype": value.dtype.str, b"shape": value.shape}
            return {b"__ndarray__": True, **data}
        return {b"__npgeneric__": True, b"data": value.item(), b"dtype": value.dtype.str}
    raise TypeError(f"a value of type {type(value).__name__} cannot be sent; give numbers, text or numpy arrays")


def _decode(entries: dict[Any, Any]) -> Any:
    """Convert the map of an array or a numpy scalar to it; other maps are unchanged."""
    if b"__ndarray__" in entries:
        dtype, data = _read_dtype(entries.get(b"dtype")), entries.get(b"data")
        shape = _read_shape(entries.get(b"shape"))
        if not isinstance(data, bytes) or math.prod(shape) * dtype.itemsize != len(data):
            size = len(data) if isinstance(data, bytes) else type(data).__name__
            raise WireError(f"an array of dtype {dtype} and shape {list(shape)[:8]} has {size} bytes of data")
        return np.ndarray(shape, dtype, buffer=data).astype(dtype.newbyteorder("="))
    if b"__npgeneric__" in entries:
        number = entries.get(b"data")
        if not isinstance(number, int | float):
            raise WireError(f"a numpy scalar has data of type {type(number).__name__}")
        return _read_dtype(entries.get(b"dtype")).newbyteorder("=").type(number)
    return entries


def _read_dtype(text: Any) -> np.dtype:
    if not isinstance(text, str) or not _DTYPE.fullmatch(text):
        raise WireError(f"dtype {text!r:.40} is refused; arrays are of booleans, integers or floats")
    return np.dtype(text)


def _read_shape(shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, list) or len(shape) > _MAX_AXES or any(type(n) is not int or n < 0 for n in shape):
        raise WireError(f"shape {shape!r:.40} is refused; it must be a list of at most {_MAX_AXES} whole numbers")
    return tuple(shape)


def _refuse_extension(code: int, data: bytes) -> Any:
    raise WireError(f"msgpack extension {code} is refused")
