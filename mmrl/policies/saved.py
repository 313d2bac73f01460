"""A policy in a folder: its settings as JSON beside its weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import nn

_SETTINGS, _WEIGHTS = "config.json", "model.safetensors"


def save(folder: str | Path, settings: Mapping[str, Any], module: nn.Module) -> None:
    """Write both files; the folder is made."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _SETTINGS).write_text(json.dumps(dict(settings), indent=2) + "\n")
    save_file({name: value.contiguous() for name, value in module.state_dict().items()}, folder / _WEIGHTS)


def settings(folder: str | Path, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The stored settings; refused where one that was asked for (not None) is another."""
    file = Path(folder) / _SETTINGS
    if not file.is_file():
        raise ValueError(f"policy.path={folder} is not a folder that save_pretrained wrote: {file} is missing")
    stored = json.loads(file.read_text())
    differing = {name: value for name, value in asked.items() if value is not None and value != stored[name]}
    if differing:
        found = {name: stored[name] for name in differing}
        raise ValueError(f"policy.path={folder} was saved with {found}, but the recipe says {differing}")
    return stored


def load(folder: str | Path, module: nn.Module) -> None:
    """Give the module the stored weights."""
    module.load_state_dict(load_file(Path(folder) / _WEIGHTS))
