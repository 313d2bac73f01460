"""Files of configuration groups: of mmrl, of the working directory, of --config-dir and of installed packages."""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from itertools import takewhile
from pathlib import Path

from mmrl.core.errors import ConfigError

CONF = next(
    folder
    for folder in (Path(__file__).parents[1] / "conf", Path(__file__).parents[2] / "conf")
    if (folder / "config.yaml").exists()
)
"""The folder of config groups: inside an installed package, or beside it in a checkout."""
CONFIG_DIR = "MMRL_CONFIG_DIR"
"""Environment variable with the folder of --config-dir; child processes of a run inherit it."""
ENTRY_POINTS = "mmrl.conf"
"""Group of entry points of installed packages; the value is a package that holds the folders of groups."""
REWARDS = "rewards"
"""Folder of the options of the key `reward`; it is no group of Hydra's, since the key names functions too."""
_PACKAGE = "# @package "


@dataclass(frozen=True)
class OptionFile:
    """The YAML file of an option.

    `name` is Hydra's: the path below the folder of the group, as `losses/gspo`. `origin` is empty for mmrl's own, else
    where the file comes from.
    """

    path: Path
    name: str
    origin: str = ""


def groups() -> dict[str, list[str]]:
    """List every config group with its options.

    conf/experiment is none, which describes comparisons of runs, and conf/rewards (`find_rewards`).
    """
    return {group: sorted(options) for group, options in find_options().items()}


def find_options() -> dict[str, dict[str, OptionFile]]:
    """Find the file of every option, by group and name.

    Raises:
        ConfigError: two folders have an option of one name, or a file lacks the first line of its group.
    """
    options: dict[str, dict[str, OptionFile]] = {group: dict(files) for group, files in _list_own().items()}
    for origin, conf in list_folders():
        for group, files in options.items():
            for file in sorted((conf / group).rglob("*.yaml")):
                _add(files, group, conf / group, file, origin)
    return options


@functools.cache
def _list_own() -> dict[str, dict[str, OptionFile]]:
    """List mmrl's own options, which do not change while a process runs."""
    options: dict[str, dict[str, OptionFile]] = {}
    for folder in sorted(CONF.iterdir()):
        if folder.is_dir() and folder.name not in ("experiment", REWARDS):
            options[folder.name] = {}
            for file in sorted(folder.rglob("*.yaml")):
                _add(options[folder.name], folder.name, folder, file, "")
    return options


def find_rewards() -> dict[str, OptionFile]:
    """Find the file of every option of the key `reward`, by name."""
    options: dict[str, OptionFile] = {}
    for origin, conf in (("", CONF), *list_folders()):
        for file in sorted((conf / REWARDS).glob("*.yaml")):
            _add(options, REWARDS, conf / REWARDS, file, origin)
    return options


def find_option(group: str, option: str) -> OptionFile:
    """Find the file of an option that exists, without listing all others.

    Raises:
        KeyError: there is none.
    """
    file = search_option(group, option)
    if file is None:
        raise KeyError(option)
    return file


def search_option(group: str, option: str) -> OptionFile | None:
    """Find the file of an option, without listing all others; None where there is none."""
    ours = _list_own().get(group, {})
    files = {option: ours[option]} if option in ours else {}
    for origin, conf in list_folders():
        for file in (conf / group).rglob(f"{option}.yaml"):
            _add(files, group, conf / group, file, origin)
    return files.get(option)


def _add(options: dict[str, OptionFile], group: str, folder: Path, file: Path, origin: str) -> None:
    """Add the file of an option; its name is that of the file, in whichever folder below the group's it lies."""
    if file.stem in options:
        other = options[file.stem]
        raise ConfigError(
            f"{file}: {other.origin or 'mmrl'} has a {group} {file.stem!r} too ({other.path}), and none "
            "hides the other; rename the file"
        )
    if origin:
        _check_package(group, file)
    options[file.stem] = OptionFile(file, file.relative_to(folder).with_suffix("").as_posix(), origin)


def read_comment(text: str) -> str:
    """The comment at the start of an option's file, without the line for Hydra."""
    lines = [line for line in text.splitlines() if not line.startswith(_PACKAGE)]
    return " ".join(line.lstrip("# ") for line in takewhile(lambda line: line.startswith("#"), lines))


def read_package(file: Path) -> str | None:
    """The key at which an option's file stands, as its first line for Hydra says; None where it has no such line."""
    line = next((line for line in _first_lines(file) if line.startswith(_PACKAGE)), None)
    return None if line is None else line.removeprefix(_PACKAGE).strip()


def list_folders() -> Iterator[tuple[str, Path]]:
    """Origin and path of every folder that is not mmrl's."""
    here = Path.cwd() / "conf"
    checkout = (
        here.parent / "mmrl" / "config" / "option_files.py"
    ).exists()  # of mmrl itself: its conf/ is not a user's
    if here.is_dir() and not checkout and here.resolve() != CONF.resolve():
        yield "conf/", here
    if folder := os.environ.get(CONFIG_DIR):
        if not Path(folder).is_dir():
            raise ConfigError(f"--config-dir {folder}: no such folder")
        if Path(folder).resolve() != here.resolve():
            yield "--config-dir", Path(folder).resolve()
    yield from _list_installed()


@functools.cache
def _list_installed() -> tuple[tuple[str, Path], ...]:
    out = []
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            spec = importlib.util.find_spec(entry.value)
        except ImportError as error:
            raise ConfigError(f"package {entry.name!r}: its entry point {ENTRY_POINTS} fails: {error}") from error
        if spec is None or not spec.submodule_search_locations:
            raise ConfigError(
                f"package {entry.name!r}: its entry point {ENTRY_POINTS} names {entry.value!r}, which is no package; "
                "name the package whose folder holds recipe/, task/ and so on"
            )
        out += [(f"package {entry.name}", Path(place)) for place in spec.submodule_search_locations]
    return tuple(out)


def _check_package(group: str, file: Path) -> None:
    """Refuse a file without the line that tells Hydra where the group stands in the configuration."""
    ours = next(line for line in _first_lines(next((CONF / group).rglob("*.yaml"))))
    if ours.startswith(_PACKAGE) and not any(line.startswith(_PACKAGE) for line in _first_lines(file)):
        raise ConfigError(f"{file}: the first line must be {ours!r}, which says where a {group} stands")


def _first_lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines()[:5]
