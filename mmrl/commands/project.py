"""Let Python find the modules of the working directory, after the installed packages."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

_OURS = Path(__file__).parents[2]
_PACKAGES = ("tasks", "sims")
_added: list[str] = []


def enter_project(folder: Path) -> None:
    """Append a folder to sys.path, in place of the folder of an earlier call; its tasks/ and sims/ stand beside mmrl's.

    A module of the folder hides no installed one. `tasks` and `sims` are namespace packages, which a regular package
    of that name would hide, so they are imported before the folder is on the path.
    """
    path = str(folder.resolve())
    for old in _added:
        if old in sys.path:
            sys.path.remove(old)
    for package in map(_import, _PACKAGES):
        if package is not None:
            name = package.__name__
            others = [place for place in package.__path__ if place not in {f"{old}/{name}" for old in _added}]
            folders = [f"{path}/{name}"] if (folder / name).is_dir() else []
            package.__path__ = list(dict.fromkeys([str(_OURS / name), *others, *folders]))
    _added.clear()
    if path not in sys.path:
        sys.path.append(path)
        _added.append(path)


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:  # a checkout that is not installed, whose folder is the working directory
        return None
