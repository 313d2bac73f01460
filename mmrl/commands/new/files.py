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
MOST_FILES = 25
"""Files that a folder of mmrl may hold."""


@dataclass(frozen=True)
class Files:
    """Templates by the path that each is written to, what the templates name, and a command to try."""

    templates: dict[str, str]
    words: dict[str, str]
    command: str


def write_files(files: Files) -> list[Path]:
    """Write the files below the working directory, and return their paths.

    Raises:
        ConfigError: one of them is there already, or its folder in a checkout of mmrl is full.
    """
    paths = {Path(path): template for path, template in files.templates.items()}
    if existing := [str(path) for path in paths if path.exists() and path.name != "conftest.py"]:
        raise ConfigError(f"there is {', '.join(existing)} already; choose another name")
    full = [folder for folder in {path.parent for path in paths} if folder.is_dir() and is_checkout()]
    if full := sorted(str(folder) for folder in full if len(list(folder.glob("*.*"))) >= MOST_FILES):
        raise ConfigError(
            f"{full[0]} has {MOST_FILES} files, and a folder of mmrl holds no more; move a family of them to a folder "
            "beside it (an option is found by its name in any folder of its group), then repeat the command"
        )
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
