"""Read and validate meta/info.json of a LeRobotDataset."""

from __future__ import annotations

import math
import os
import re
import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mmrl.datasets.base import Feature
from mmrl.datasets.lerobot import layout
from mmrl.files.strict_json import kind, need_object, quote

UNREAD = ("string", "language")
"""Types of columns that are skipped, because no policy reads them."""

_CAMERAS = ("image", "video")
_MOST = 2**27  # numbers of one feature in one control step
_REMEDY = "copy the dataset again from its source, or correct the file"


def check_version(info: Mapping[str, Any], file: Path) -> None:
    """Refuse other versions of the format; the error names the command that converts older ones."""
    version = info.get("codebase_version")
    if version == layout.VERSION:
        return
    how = "this is newer than what can be read here"
    if str(version).startswith("v2"):
        how = f"convert it once: mmrl data convert {file.parent.parent} out=NEW_FOLDER"
    elif str(version).startswith("v1"):
        how = "convert it to v2.0 with an older lerobot, then with mmrl data convert"
    raise ValueError(f"{file}: codebase_version is {quote(version)}, not {layout.VERSION!r}; {how}")


def read_fps(info: Mapping[str, Any], file: Path) -> float:
    """Read the number of control steps per second; must be positive."""
    fps = info.get("fps")
    if isinstance(fps, bool) or not isinstance(fps, int | float) or not 0 < fps < math.inf:
        raise ValueError(f"{file}: fps is {quote(fps)}; it must be the control steps per second, a number above 0")
    return float(fps)


def check_sizes(info: Mapping[str, Any], file: Path) -> None:
    """Refuse maximum file sizes that are not positive numbers."""
    for name in ("chunks_size", "data_files_size_in_mb", "video_files_size_in_mb"):
        size = info.get(name, 1)
        if isinstance(size, bool) or not isinstance(size, int | float) or not size > 0:
            raise ValueError(f"{file}: {name} is {quote(size)}; it must be a number above 0; {_REMEDY}")


def read_features(info: Mapping[str, Any], file: Path) -> dict[str, Feature]:
    """Read the columns of the dataset, in the order of the file."""
    stated = need_object(info.get("features"), f"{file}: features", _REMEDY)
    columns = {key: _feature(plain, f"{file}: feature {quote(key)}") for key, plain in stated.items()}
    absent = [key for key in (layout.ACTION, *layout.INDEX) if key not in columns]
    if absent:
        raise ValueError(f"{file}: features lack {absent}; {_REMEDY}")
    action = columns[layout.ACTION]
    if action.camera or action.dtype in UNREAD or len(action.shape) != 1:
        raise ValueError(
            f"{file}: feature 'action' is {action.dtype} {list(action.shape)} per control step; it must be a vector "
            "of numbers, such as float32 [7]"
        )
    return columns


def _feature(plain: Any, place: str) -> Feature:
    plain = need_object(plain, place, _REMEDY)
    dtype, shape = plain.get("dtype"), plain.get("shape")
    if not isinstance(dtype, str) or not (dtype in (*_CAMERAS, *UNREAD) or _is_number(dtype)):
        raise ValueError(f"{place}: dtype {quote(dtype)} is not known; {_REMEDY}")
    whole = isinstance(shape, list) and all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in shape)
    if not whole or not shape or math.prod(shape) > _MOST:
        raise ValueError(f"{place}: shape {quote(shape)} must be a list of whole numbers above 0; {_REMEDY}")
    if dtype in _CAMERAS and len(shape) != 3:
        raise ValueError(f"{place}: shape {quote(shape)} of a camera must be [height, width, channels]; {_REMEDY}")
    return layout.read_feature(plain)


def _is_number(dtype: str) -> bool:
    try:
        return np.dtype(dtype).kind in "biuf"
    except TypeError:
        return False


_FIELDS = {"video_key": "camera", "chunk_index": 0, "file_index": 0}
_NUMBER = re.compile(r"(0?[1-9]d?)?")
"""The form of a number: its width, at most nine digits."""


def read_paths(info: Mapping[str, Any], file: Path) -> tuple[str, str | None]:
    """Read the path patterns of data and video files; refuses unknown fields and paths outside of the folder."""
    data = read_pattern(info, "data_path", _FIELDS, layout.DATA, file)
    return data, None if info.get("video_path") is None else read_pattern(
        info, "video_path", _FIELDS, layout.DATA, file
    )


def read_pattern(info: Mapping[str, Any], name: str, fields: Mapping[str, str | int], example: str, file: Path) -> str:
    """Read one path pattern.

    Args:
        info: content of meta/info.json.
        name: of the entry.
        fields: that it may have, each with a value.
        example: a good one, for messages.
        file: path of meta/info.json, for messages.

    Raises:
        ValueError: it is no text, has other fields, or leads outside of the folder.
    """
    pattern = info.get(name)
    if not isinstance(pattern, str):
        raise ValueError(f"{file}: {name} is {kind(pattern)}; it must be a text such as {example!r}")
    try:
        for _, field, form, conversion in string.Formatter().parse(pattern):
            if field is not None and not (field in fields and _NUMBER.fullmatch(form or "") and conversion is None):
                raise ValueError(field)
        path = pattern.format(**fields)
    except (KeyError, IndexError, ValueError, AttributeError, TypeError) as error:
        raise ValueError(
            f"{file}: {name} is {quote(pattern)}; its fields may be {', '.join(sorted(fields))}, as in {example!r}"
        ) from error
    resolve_inside(Path(), path, f"{file}: {name}")
    return pattern


def resolve_inside(folder: Path, name: str, place: str) -> Path:
    """Return the path of `name` in the folder; refuses paths outside of it. Symbolic links are followed.

    Args:
        folder: folder of the dataset.
        name: relative path.
        place: origin of the name, for error messages.
    """
    normal = os.path.normpath(name)
    if os.path.isabs(name) or normal.split(os.sep)[0] == os.pardir or "\0" in name:
        raise ValueError(f"{place} is {quote(name)}, which leaves the folder of the dataset; {_REMEDY}")
    return folder / normal


def read_own(kept: Mapping[str, Any], file: Path) -> tuple[dict[str, Any] | None, dict[str, str]]:
    """Read the simulator's contract and the names of observations from meta/mmrl.json."""
    remedy = "delete the file if the dataset was not recorded by mmrl, or copy it again"
    contract = kept.get("contract")
    contract = None if contract is None else need_object(contract, f"{file}: contract", remedy)
    names = need_object(kept.get("names", {}), f"{file}: names", remedy)
    if wrong := [key for key, name in names.items() if not isinstance(name, str) or not name]:
        raise ValueError(f"{file}: the name of {quote(wrong[0])} is {quote(names[wrong[0]])}, not a text; {remedy}")
    if len(set(names.values())) < len(names):
        raise ValueError(f"{file}: names gives two observations one name: {quote(names)}; {remedy}")
    return contract or None, names
