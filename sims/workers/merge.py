"""Join what the processes of a simulator report about their environments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def join_reports(parts: Sequence[dict[str, Any]], slices: Sequence[slice], num_envs: int) -> dict[str, Any]:
    """Join mappings of columns [environments of the part] to columns [num_envs], as gymnasium fills them.

    A column that a part lacks is zero there, or None where it holds objects or is a list.
    """
    names = dict.fromkeys(name for part in parts for name in part)
    return {
        name: _join([(part[name], rows) for part, rows in zip(parts, slices) if name in part], num_envs)
        for name in names
    }


def _join(columns: Sequence[tuple[Any, slice]], num_envs: int) -> Any:
    first = columns[0][0]
    if isinstance(first, dict):
        return join_reports([column for column, _ in columns], [rows for _, rows in columns], num_envs)
    if isinstance(first, np.ndarray):
        objects = any(column.dtype.hasobject for column, _ in columns)
        dtype = np.dtype(object) if objects else np.result_type(*[column.dtype for column, _ in columns])
        out = np.full((num_envs, *first.shape[1:]), None if objects else 0, dtype)
        for column, rows in columns:
            out[rows] = column
        return out
    if isinstance(first, (list, tuple)):
        listed: list[Any] = [None] * num_envs
        for column, rows in columns:
            listed[rows] = column
        return type(first)(listed)
    return first
