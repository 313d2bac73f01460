"""Save and load a policy's settings (JSON) and weights in a folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import nn

from mmrl.files.atomic import restore_folder
from mmrl.files.strict_json import read_json_object
from mmrl.policies.weights import fill, read_weights

_SETTINGS, _WEIGHTS = "config.json", "model.safetensors"


def save(folder: str | Path, settings: Mapping[str, Any], module: nn.Module) -> None:
    """Write settings and weights; create the folder."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _SETTINGS).write_text(json.dumps(dict(settings), indent=2) + "\n")
    save_file({name: value.contiguous() for name, value in module.state_dict().items()}, folder / _WEIGHTS)


def resolve(scope: Mapping[str, Any], path: str | None, sizes: Sequence[str]) -> dict[str, Any]:
    """Return a policy's settings: the arguments of its constructor, or what is stored under `path`.

    Args:
        scope: `locals()` at the start of the constructor, which has its arguments; `options` are those of a subclass.
        path: folder that `save` wrote; None without one.
        sizes: settings that must not differ from the stored ones where they are given.
    """
    hidden = ("self", "__class__", "path", "options")
    arguments = {name: value for name, value in scope.items() if name not in hidden} | scope.get("options", {})
    return arguments if path is None else _read_settings(path, {name: arguments[name] for name in sizes})


def _read_settings(folder: str | Path, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Read the stored settings; refuse a requested setting (not None) that differs."""
    file = restore_folder(folder) / _SETTINGS
    if not file.is_file():
        raise ValueError(f"policy.path={folder}: {file} is missing; give a folder that save_pretrained wrote")
    stored = read_json_object(file, "give a folder that save_pretrained wrote", finite=False)
    absent = sorted(set(sizes) - set(stored))
    if absent:
        raise ValueError(f"{file}: {absent} missing; give a folder that save_pretrained wrote")
    differing = {name: value for name, value in sizes.items() if value is not None and value != stored[name]}
    if differing:
        entries = {name: stored[name] for name in differing}
        raise ValueError(f"policy.path={folder} was saved with {entries}, but the recipe says {differing}")
    return stored


def load(folder: str | Path | None, module: nn.Module) -> None:
    """Load the stored weights into the module; None leaves it as it is."""
    if folder is None:
        return
    path = Path(folder) / _WEIGHTS
    fill(module, read_weights(path, "give a folder that save_pretrained wrote"), str(path))
