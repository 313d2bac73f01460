"""Files of `mmrl new`: templates, what they name, and how they are written."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from string import Template

from mmrl.config.option_files import CONF
from mmrl.core.errors import ConfigError

TEMPLATES = Path(__file__).parent / "templates"
PLACEHOLDER = "TODO"
"""What templates have where something is to be written; no file of mmrl has it."""


@dataclass(frozen=True)
class Files:
    """Templates by the path that each is written to, what the templates name, and a command to try."""

    templates: dict[str, str]
    words: dict[str, str]
    command: str


def write_files(files: Files) -> list[Path]:
    """Write the files below the working directory, and return their paths.

    Raises:
        ConfigError: one of them is there already.
    """
    paths = {Path(path): template for path, template in files.templates.items()}
    if existing := [str(path) for path in paths if path.exists() and path.name != "conftest.py"]:
        raise ConfigError(f"there is {', '.join(existing)} already; choose another name")
    new_paths = []
    for path, template in paths.items():
        if path.exists():
            continue
        text = (TEMPLATES / f"{template}.txt").read_text()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(Template(text).substitute(files.words) if "$" in text else text)
        new_paths.append(path)
    return new_paths


def check_module(name: str) -> str:
    """Refuse the name of a module that Python has already: the file would not be found under it."""
    if not Path(f"{name}.py").exists() and importlib.util.find_spec(name) is not None:
        raise ConfigError(f"{name}.py would have the name of a module that is there already; choose another name")
    return name


def is_checkout() -> bool:
    """Whether the working directory is a checkout of mmrl, and not the project of a user."""
    return Path("conf").resolve() == CONF
