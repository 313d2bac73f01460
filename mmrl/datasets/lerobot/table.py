"""Convert numpy arrays to arrow tables with LeRobot's column types, and back."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from mmrl.datasets.base import Feature
from mmrl.datasets.extras import arrow, parquet
from mmrl.files.foreign import check_regular, check_stated
from mmrl.files.strict_json import quote

_REMEDY = "copy the dataset again from its source, or correct meta/info.json"


def to_table(columns: dict[str, Any], features: dict[str, Feature]) -> Any:
    """Build a table: scalars for shape (1,), lists of fixed size for vectors, {"bytes", "path"} for images."""
    pa = arrow()
    arrays = {}
    for key, feature in features.items():
        if key not in columns:
            continue  # a video has its own file
        rows = columns[key]
        if feature.dtype == "image":
            kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
            arrays[key] = pa.array([{"bytes": row, "path": None} for row in rows], kind)
            continue
        flat = np.ascontiguousarray(np.asarray(rows, feature.dtype)).reshape(-1)
        values = pa.array(flat)
        for size in reversed(feature.shape if feature.shape != (1,) else ()):
            values = pa.FixedSizeListArray.from_arrays(values, size)
        arrays[key] = values
    return pa.table(arrays)


def to_array(column: Any, feature: Feature, place: str) -> np.ndarray:
    """Convert a column to an array [T, ...]; nested lists of any kind are accepted, scalars give [T].

    Args:
        column: of the table.
        feature: its entry in meta/info.json.
        place: file, episode and column, for messages.
    """
    flat = column.combine_chunks() if hasattr(column, "combine_chunks") else column
    count = len(flat)
    pa = arrow()
    while pa.types.is_list(flat.type) or pa.types.is_large_list(flat.type) or pa.types.is_fixed_size_list(flat.type):
        flat = flat.flatten()
    if flat.null_count:
        raise ValueError(f"{place}: {flat.null_count} numbers are missing (null); leave the episode out or mend it")
    try:  # a copy: arrow's memory may not be written to
        values = flat.to_numpy(zero_copy_only=False).astype(feature.dtype)
    except (ValueError, TypeError, NotImplementedError) as error:
        raise ValueError(f"{place}: holds {flat.type}, meta/info.json says {feature.dtype}; {_REMEDY}") from error
    shape = (count,) if feature.shape == (1,) else (count, *feature.shape)
    if values.size != math.prod(shape):
        raise ValueError(
            f"{place}: {values.size} numbers in {count} control steps, meta/info.json says {list(feature.shape)} in "
            f"each; {_REMEDY}"
        )
    return values.reshape(shape)


def open_table(path: Path) -> Any:
    """Open a parquet file and read its schema."""
    pa = arrow()
    check_regular(path, _REMEDY)
    try:
        file = parquet().ParquetFile(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ValueError(f"{path}: not a readable parquet file ({_reason(error)}); {_REMEDY}") from error
    groups = [file.metadata.row_group(group).total_byte_size for group in range(file.metadata.num_row_groups)]
    check_stated(max(groups, default=0), path.stat().st_size, str(path), _REMEDY)
    return file


def read_table(path: Path, columns: list[str] | None = None, groups: list[int] | None = None, file: Any = None) -> Any:
    """Read rows of a parquet file.

    Args:
        path: path of the file.
        columns: names of the columns; None for all.
        groups: indices of row groups; None for all.
        file: the open file; None opens `path`.
    """
    pa = arrow()
    file = open_table(path) if file is None else file
    try:
        table = file.read(columns=columns) if groups is None else file.read_row_groups(groups, columns=columns)
        table.validate(full=True)  # texts that are no UTF-8, and offsets that lead outside of the file
        return table
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ValueError(f"{path}: not a readable parquet file ({_reason(error)}); {_REMEDY}") from error


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def write_tasks(path: Path, tasks: dict[str, int]) -> None:
    """Write meta/tasks.parquet; the instruction is the index of the pandas frame, as in LeRobot."""
    pa = arrow()
    table = pa.table({"task_index": pa.array(list(tasks.values()), pa.int64()), "task": list(tasks)})
    described = {"numpy_type": "object", "pandas_type": "unicode", "metadata": None}
    pandas = {
        "index_columns": ["task"],
        "column_indexes": [{"name": None, "field_name": None, **described, "metadata": {"encoding": "UTF-8"}}],
        "columns": [
            {"name": "task_index", "field_name": "task_index", "pandas_type": "int64", "numpy_type": "int64"}
            | {"metadata": None},
            {"name": "task", "field_name": "task", **described},
        ],
        "creator": {"library": "pyarrow", "version": pa.__version__},
        "pandas_version": "2.0.0",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet().write_table(table.replace_schema_metadata({"pandas": json.dumps(pandas)}), path)


def read_tasks(path: Path) -> dict[int, str]:
    """Read the instructions by task index."""
    table = read_table(path)
    text_columns = [name for name in ("task", "__index_level_0__") if name in table.column_names]
    if "task_index" not in table.column_names or not text_columns:
        raise ValueError(f"{path}: needs columns 'task_index' and 'task', has {table.column_names}")
    tasks = dict(zip(table["task_index"].to_pylist(), table[text_columns[0]].to_pylist()))
    for number, text in tasks.items():
        if not isinstance(number, int) or not isinstance(text, str):
            raise ValueError(f"{path}: task {quote(number)} is {quote(text)}, not a text; {_REMEDY}")
    return tasks
