"""Messages between the trainer and the processes of a simulator: msgpack with arrays, no pickle."""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np

PROTOCOL = 2
"""Both sides must speak the same version; it changes with every message that changes."""

_ARRAY, _OBJECTS, _TUPLE, _INTEGER, _NUMBER = range(1, 6)


def pack(value: Any) -> bytes:
    """Serialise plain values, tuples, integers of any size, numpy arrays and torch tensors (as arrays)."""
    return msgpack.packb(value, default=_encode, strict_types=True, use_bin_type=True)


def unpack(data: bytes) -> Any:
    """Deserialise what `pack` wrote; arrays own their memory."""
    return msgpack.unpackb(data, ext_hook=_decode, raw=False, strict_map_key=False)


def _encode(value: Any) -> Any:
    if isinstance(value, tuple):
        return msgpack.ExtType(_TUPLE, pack(list(value)))
    if isinstance(value, int):
        return msgpack.ExtType(_INTEGER, str(value).encode())
    if isinstance(value, np.generic):
        return msgpack.ExtType(_NUMBER, pack(np.asarray(value)))
    if hasattr(value, "detach") and hasattr(value, "numpy"):  # a tensor
        value = value.detach().numpy()
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            return msgpack.ExtType(_OBJECTS, pack([list(value.shape), value.ravel().tolist()]))
        parts = [value.dtype.str, list(value.shape), np.ascontiguousarray(value).tobytes()]
        return msgpack.ExtType(_ARRAY, pack(parts))
    if isinstance(value, dict):  # of another type than dict
        return dict(value)
    if isinstance(value, str):
        return str(value)
    raise TypeError(f"a simulator's message cannot hold {type(value).__name__}: {value!r:.80}")


def _decode(code: int, data: bytes) -> Any:
    if code == _ARRAY:
        dtype, shape, buffer = unpack(data)
        return np.frombuffer(buffer, dtype=np.dtype(dtype)).reshape(shape).copy()
    if code == _OBJECTS:
        shape, items = unpack(data)
        out = np.empty(len(items), dtype=object)
        for i, item in enumerate(items):
            out[i] = item
        return out.reshape(shape)
    if code == _TUPLE:
        return tuple(unpack(data))
    if code == _INTEGER:
        return int(data)
    if code == _NUMBER:
        return unpack(data)[()]
    raise ValueError(f"a simulator's message has the unknown type {code}")
