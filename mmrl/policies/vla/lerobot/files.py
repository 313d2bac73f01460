"""Files of a policy that lerobot saved: config.json and model.safetensors, in a folder or on the hub."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError

from mmrl.files.strict_json import read_json_object

CONFIG, WEIGHTS = "config.json", "model.safetensors"
REMEDY = "give a folder or hub id of a policy that lerobot or mmrl saved (policy.path)"


def find_file(path: str, name: str) -> Path | None:
    """Return a file of a folder or, downloaded, of a hub repository; None if it has no such file."""
    if Path(path).is_dir():
        file = Path(path) / name
        return file if file.is_file() else None
    try:
        return Path(hf_hub_download(path, name))
    except EntryNotFoundError:
        return None


def need_file(path: str, name: str) -> Path:
    """Return a file as `find_file` does; an error names the checkpoint that lacks it."""
    file = find_file(path, name)
    if file is None:
        raise ValueError(f"{path} has no {name}; {REMEDY}")
    return file


def read_config(path: str, kind: str, unsupported: Sequence[str] = ()) -> dict[str, Any]:
    """Read config.json of a checkpoint.

    Args:
        path: folder or hub id.
        kind: the entry `type`; another one is refused.
        unsupported: entries that must be absent or false, since mmrl does not compute what they switch on.
    """
    file = need_file(path, CONFIG)
    raw = read_json_object(file, REMEDY)
    if raw.get("type") != kind:
        raise ValueError(f"{file} is of type {raw.get('type')!r}, not {kind}; {REMEDY}")
    for name in unsupported:
        if raw.get(name):
            raise ValueError(f"{file}: {name} is true, which mmrl does not compute; take a checkpoint without it")
    return raw


def write_features(
    folder: Path, image_size: tuple[int, int], cameras: Sequence[str], proprio_dims: int, action_dims: int
) -> None:
    """Write the sizes of observations and actions to config.json.

    Names of images are kept where the checkpoint has as many as there are cameras; other images get `image_size`,
    (width, height).
    """
    config = read_json_object(folder / CONFIG, REMEDY)
    images = {n: part for n, part in (config.get("input_features") or {}).items() if part.get("type") == "VISUAL"}
    if len(images) != len(cameras):
        shape = [3, image_size[1], image_size[0]]
        images = {f"observation.images.{name}": {"type": "VISUAL", "shape": shape} for name in cameras}
    config["input_features"] = {"observation.state": {"type": "STATE", "shape": [proprio_dims]}, **images}
    config["output_features"] = {"action": {"type": "ACTION", "shape": [action_dims]}}
    (folder / CONFIG).write_text(json.dumps(config, indent=4) + "\n")
