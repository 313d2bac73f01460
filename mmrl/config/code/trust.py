"""Code that a configuration file names, and what of it needs trust."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import itertools
import re
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from mmrl.core.errors import ConfigError
from mmrl.core.function_path import split_path

OURS = ("mmrl", "tasks", "sims")
"""Packages whose functions a configuration file may name without trust."""
_ROOT = Path(__file__).parents[3]
_PROGRAMS = "python"
"""Arguments that name an interpreter to start."""
_COMMANDS = "command"
"""Arguments that hold a whole command, of which no part shows what it does."""
_GUESTS = ("sims.workers.guest.NamedGuest",)
"""Classes whose `path` is the import path of a class."""
_FUNCTIONS = ("function", "functions", "agent")
"""Arguments that name functions: of rewards, tools, scorers of steps, judges and agents."""
_WORDS = re.compile(r"""[^\s=,:;|()\[\]{}<>'"]+\.[^\s=,:;|()\[\]{}<>'"]+""")
"""Words with a dot, between the marks of YAML and of arguments."""
_STAGES = {"stages", "common"}
"""Arguments that hold arguments of the command line, of the runs of a warm start."""
_TRUST = "read it, then give trust=true"


def check_named_code(config: Mapping[str, Any], file: Path, trust: bool = False) -> None:
    """Refuse code that a configuration file names and that is neither installed nor of the working directory.

    Nothing is imported. Classes may be of installed packages, functions of mmrl's own. Both may stand in the working
    directory, outside of the folder of the file. The rest needs `trust`. The standard library has no part of a run.

    Args:
        config: content of the file, parts as {class_path, init_args}.
        file: for messages; its folder may come from another person.
        trust: whether the command line says trust=true.

    Raises:
        ConfigError: with the key, the code and the remedy.
    """
    for key, value in _walk(config):
        name = key.rpartition(".")[2]
        if name in ("class_path", "_target_") and isinstance(value, str):
            _check_module(value.rpartition(".")[0], key, value, file, trust)
        elif name in _FUNCTIONS:
            for path in [value] if isinstance(value, str) and value else value if isinstance(value, list) else []:
                if re.search("[.:]", str(path)):  # a plain word is no path: it names a function of the task strings
                    _check_function(str(path), key, file, trust)
        elif name == _PROGRAMS and isinstance(value, str) and value not in ("null", "~", "") and not trust:
            _check_program(value, key, file)
        elif name == "id" and isinstance(value, str) and ":" in value:  # of gymnasium: package:Name-v0
            _check_module(value.partition(":")[0], key, value, file, trust)
        elif _STAGES & set(key.split(".")) and isinstance(value, str):
            _check_argument(value, key, file, trust)
        if isinstance(value, Mapping) and value.get("class_path") in _GUESTS:
            path = str((value.get("init_args") or {}).get("path"))
            _check_module(path.replace(":", ".").rpartition(".")[0], f"{key}.path", path, file, trust)
    if not trust:
        _check_texts(config, file)
    commands = (key for key, value in _walk(config) if key.rpartition(".")[2] == _COMMANDS and isinstance(value, str))
    if not trust and (key := next(commands, None)) is not None:
        raise ConfigError(f"{file}: {key} is a command that would be started; {_TRUST}")
    folder = config.get("project")
    if isinstance(folder, str) and Path(folder).is_dir() and not trust and Path(folder).resolve() != Path.cwd():
        keys = [key for key, value in _walk(config) if _is_of_project(key, value, Path(folder))]
        if keys:
            raise ConfigError(
                f"{file}: {keys[0]} is code of the project {folder}, and this command was not started there; start it "
                f"there, or {_TRUST}"
            )


def _check_texts(config: Mapping[str, Any], file: Path) -> None:
    """Refuse import paths of others' code in any text: the parser imports what stands in place of a class or function.

    A part may also stand there as a text of YAML, so that every word of a text is looked at.
    """
    looked_at: set[str] = set()
    for key, value in _walk(config):
        for word in itertools.chain.from_iterable(map(_WORDS.findall, _list_texts(value))):
            module = word.strip(".").rpartition(".")[0]
            if not module or module in looked_at or "/" in word:
                continue
            looked_at.add(module)
            origin = _origin(module)
            if origin is not None and origin.is_file() and not is_standard(module):
                _refuse_foreign(origin, key, word, file)


def _list_texts(value: Any) -> Iterator[str]:
    """Iterate over a text and the texts that YAML reads in it, where it has escapes, which hide a word."""
    if isinstance(value, str):
        yield value
        if "\\" in value:
            with suppress(yaml.YAMLError):
                inside = (token.value for token in yaml.scan(value) if isinstance(token, yaml.ScalarToken))
                yield from itertools.chain.from_iterable(_list_texts(text) for text in inside if text != value)


def _walk(node: Any) -> Iterator[tuple[str, Any]]:
    """Iterate over the nodes of a configuration with their keys, `init_args` left out."""
    nodes = [("", node)]
    while nodes:
        key, value = nodes.pop()
        yield key, value
        pairs: Any = enumerate(value) if isinstance(value, list) else ()
        pairs = value.items() if isinstance(value, Mapping) else pairs
        nodes += [(key if name == "init_args" else f"{key}.{name}".lstrip("."), inside) for name, inside in pairs]


def _check_module(module: str, key: str, path: str, file: Path, trust: bool) -> None:
    if not module or is_standard(module):
        raise ConfigError(f"{file}: {key}={path} is of Python's standard library, which has no part of a run")
    if not trust:
        _refuse_foreign(_origin(module), key, path, file)


def _check_function(path: str, key: str, file: Path, trust: bool) -> None:
    try:
        where, _ = split_path(path, key)
    except ValueError as error:
        raise ConfigError(f"{file}: {error}") from error
    if where.endswith(".py"):
        if not trust:
            _refuse_foreign(Path(where).expanduser().absolute(), key, path, file)
        return
    if is_standard(where):
        raise ConfigError(f"{file}: {key}={path} is of Python's standard library; name a function of your own")
    origin = _origin(where)
    if trust or where.partition(".")[0] in OURS or origin is None:
        return
    if _is_installed(origin):
        raise ConfigError(f"{file}: {key}={path} is a function of an installed package, not of mmrl; {_TRUST}")
    _refuse_foreign(origin, key, path, file)


def _check_argument(argument: str, key: str, file: Path, trust: bool) -> None:
    """Check an argument of the command line: paths of functions, and classes in `_target_`."""
    for function in re.findall(r"[^\s=,\[\]'\"]+\.py:[\w.]+", argument):
        _check_function(function, key, file, trust)
    for path in re.findall(r"_target_\s*[=:]\s*['\"]?([\w.]+)", argument):
        _check_module(path.rpartition(".")[0], key, path, file, trust)


def _check_program(value: str, key: str, file: Path) -> None:
    place = Path(value).absolute()
    beside = (Path(sys.executable).parent, *(folder for folder in (Path.cwd(), _ROOT)))
    inside = any(place.is_relative_to(folder) for folder in beside) and not _is_of(place, file.parent)
    if not inside:
        raise ConfigError(
            f"{file}: {key}={value} is a program outside of the working directory, and it would be started; {_TRUST}"
        )


def _refuse_foreign(origin: Path | None, key: str, path: str, file: Path) -> None:
    """Refuse code that is not installed and not of the working directory, or stands in the folder of the file."""
    if origin is None or _is_installed(origin) or _is_imported(origin):
        return  # the parser reports what cannot be found
    resolved = origin.resolve()
    if not resolved.is_relative_to(Path.cwd()) or _is_of(resolved, file.parent):
        raise ConfigError(
            f"{file}: {key}={path} is code of {resolved}, which is not of the working directory; start the command in "
            f"the folder of that code if it is yours, or {_TRUST}"
        )


def _is_of(place: Path, folder: Path) -> bool:
    """Whether a file stands in a run's folder; a configuration file in the working directory itself has none."""
    folder = folder.resolve()
    return folder != Path.cwd() and not Path.cwd().is_relative_to(folder) and place.resolve().is_relative_to(folder)


def _is_installed(origin: Path) -> bool:
    places = {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
    places |= {Path(entry) for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))}
    inside = any(origin.is_relative_to(place) or origin.resolve().is_relative_to(place.resolve()) for place in places)
    return inside or any(origin.is_relative_to(_ROOT / name) for name in OURS)


def _is_imported(origin: Path) -> bool:
    """Whether the program has imported a file, and so runs it already."""
    return any(getattr(module, "__file__", None) == str(origin) for module in list(sys.modules.values()))


def _is_of_project(key: str, value: Any, folder: Path) -> bool:
    """Whether a value names a class of the project's folder, which Python would find once it is entered."""
    if key.rpartition(".")[2] not in ("class_path", "_target_") or not isinstance(value, str):
        return False
    top = value.partition(".")[0]
    if top in OURS:
        beside = folder / Path(*value.split(".")[:2])
        return not _is_in_ours(value) and (beside.is_dir() or beside.with_suffix(".py").is_file())
    return _origin(top) is None and ((folder / top).is_dir() or (folder / f"{top}.py").is_file())


def _is_in_ours(path: str) -> bool:
    """Whether tasks.NAME, sims.NAME or mmrl.NAME is a module of this installation or of the working directory."""
    place = _origin(".".join(path.split(".")[:2]))
    return place is not None and path.split(".")[1] in (place.stem, place.parent.name, place.name)


def is_standard(module: str) -> bool:
    """Whether a module is Python's own, such as os or subprocess."""
    top = module.partition(".")[0]
    return top in sys.stdlib_module_names or top in sys.builtin_module_names or top == "__main__"


def _origin(module: str) -> Path | None:
    """Return the file of a module, or that of the nearest package above it, without importing any; None without one.

    A package without a file, as `tasks`, is a folder.
    """
    place, folders = None, None
    for part in module.split("."):
        try:
            spec = importlib.util.find_spec(part) if folders is None else _find_in(part, folders)
        except (ImportError, ValueError):
            return None
        if spec is None:
            break
        folders = list(spec.submodule_search_locations or ())
        place = Path(spec.origin) if spec.origin is not None and spec.has_location else Path(next(iter(folders), "."))
    return place


def _find_in(name: str, folders: list[str]) -> importlib.machinery.ModuleSpec | None:
    return importlib.machinery.PathFinder.find_spec(name, folders)
