"""Convert a user's list of problems to a JSON Lines file, which the task `dataset` reads in every process."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from mmrl.api.arguments import part_arguments, to_arguments, to_text
from mmrl.core.errors import ConfigError
from mmrl.core.types import Task

FOLDER = Path("runs/problems")
"""Where the files go, each under the hash of its content: the same problems have the same file."""
COLUMNS = ("question", "answer", "image")


def task_arguments(key: str, value: Any) -> Iterator[str]:
    """The arguments of a task: the name of an option, a Task as a part, or a list of problems as task=dataset.

    Args:
        key: "task".
        value: a problem is {"question": text, "answer": text or number} and may have an "image": a path, a PIL image or
            uint8 [H, W, 3]; all of the problems have one, or none.
    """
    if isinstance(value, str):
        yield f"{key}={value}"
    elif isinstance(value, Task):
        yield from part_arguments(key, value)
    elif isinstance(value, Sequence):
        yield from _dataset_arguments(value)
    else:
        yield from to_arguments(key, value)


def _dataset_arguments(problems: Sequence[Any]) -> Iterator[str]:
    rows = [_row(number, problem) for number, problem in enumerate(problems)]
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    yield "task=dataset"
    yield f"task.path={to_text(str(_write(text, 'jsonl')))}"
    folders = [str(Path(row["image"]).parent) for row in rows if "image" in row]
    if folders:
        yield "task.images=image"
        yield f"task.image_folder={to_text(os.path.commonpath(folders))}"


def _row(number: int, problem: Any) -> dict[str, Any]:
    where = f"task[{number}]"
    if not isinstance(problem, Mapping):
        raise ConfigError(f"{where} must be a mapping of {', '.join(COLUMNS)}, got {type(problem).__name__}")
    if wrong := [name for name in problem if name not in COLUMNS]:
        raise ConfigError(f"{where} has {wrong[0]!r}; a problem has {', '.join(COLUMNS)}")
    row = {name: value for name, value in problem.items() if value is not None}
    if "image" in row:
        row["image"] = str(_image_path(where, row["image"]))
    try:
        json.dumps(row)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where}: {error}; the question is text, the answer text or a number") from error
    return row


def _image_path(where: str, image: Any) -> Path:
    if isinstance(image, str | Path):
        return Path(image).expanduser().absolute()
    if not isinstance(image, Image.Image):
        pixels = np.asarray(image)
        if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3:
            raise ConfigError(
                f"{where}: the image must be a path, a PIL image or uint8 [H, W, 3], got {pixels.dtype} {pixels.shape}"
            )
        image = Image.fromarray(pixels)
    image = image.convert("RGB")
    path = _path(repr(image.size).encode() + image.tobytes(), "png")
    if not path.exists():
        image.save(path)
    return path


def _write(content: bytes, suffix: str) -> Path:
    path = _path(content, suffix)
    path.write_bytes(content)
    return path


def _path(content: bytes, suffix: str) -> Path:
    folder = FOLDER.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{hashlib.sha256(content).hexdigest()[:16]}.{suffix}"
