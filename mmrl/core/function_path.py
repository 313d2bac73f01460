"""Functions named by a path: rewards.py:score, rewards.py:Judge.score, package.module:score or package.module.score."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import sys
import sysconfig
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

FORMS = "rewards.py:score, rewards.py:Judge.score or package.module:score"


def split_path(path: str, key: str) -> tuple[str, str]:
    """Split into the file or module and the dotted name inside it; package.module.score has its name last.

    Args:
        path: of the function.
        key: of the configuration that gave it, for messages.

    Raises:
        ValueError: the path has none of the forms.
    """
    where, colon, name = path.rpartition(":")
    if not colon and not path.endswith(".py"):
        where, _, name = path.rpartition(".")
    if not where or not all(part.isidentifier() for part in name.split(".")):
        raise ValueError(f"{key}={path}: name a function as {FORMS}")
    return where, name


def resolve_path(path: str, folder: Path, key: str) -> str:
    """Make the file of a path absolute, from the folder that relative ones start in, and check that it exists."""
    where, name = split_path(path, key)
    if not where.endswith(".py"):
        return path
    file = (folder / Path(where).expanduser()).resolve()
    if not file.is_file():
        raise ValueError(f"{key}={path}: there is no file {file}")
    return f"{file}:{name}"


def load_functions(paths: Sequence[str], key: str) -> list[Callable[..., Any]]:
    """Import functions. A class that several of them are methods of is instantiated once.

    Raises:
        ValueError: a file, module or name is missing or fails, with the path as the user gave it.
    """
    instances: dict[type, Any] = {}
    return [_load_function(path, instances, key) for path in paths]


def _load_function(path: str, instances: dict[type, Any], key: str) -> Callable[..., Any]:
    where, name = split_path(path, key)
    try:
        value: Any = _load_file(Path(where)) if where.endswith(".py") else importlib.import_module(where)
    except BaseException as error:  # what the user's module raises, SystemExit too
        raise ValueError(f"{key}={path}: importing {where} raised {format_error(error, where)}") from error
    for part in name.split("."):
        owner, value = value, getattr(value, part, None)
        if value is None:
            raise ValueError(f"{key}={path}: {_describe(owner)} has no {part!r}{_suggest(owner, part)}")
        if inspect.isclass(owner) and inspect.isfunction(inspect.getattr_static(owner, part)):
            value = getattr(_instance(owner, path, instances, key), part)
    if inspect.isclass(value):
        value = _instance(value, path, instances, key)
    if not callable(value):
        raise ValueError(f"{key}={path}: {name} is {type(value).__name__}, not a function")
    return value


def _instance(kind: type, path: str, instances: dict[type, Any], key: str) -> Any:
    if kind not in instances:
        try:
            instances[kind] = kind()
        except Exception as error:
            raise ValueError(
                f"{key}={path}: {kind.__name__}() raised {format_error(error, path)}; its constructor must work "
                "without arguments"
            ) from error
    return instances[kind]


def _load_file(file: Path) -> ModuleType:
    """Import a file under its own name where that finds it, else under a name that hides no other module."""
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file}")
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))  # for modules beside it; it hides no installed one
    if file.stem.isidentifier():
        stem_spec = importlib.util.find_spec(file.stem)
        if stem_spec is not None and stem_spec.origin is not None and Path(stem_spec.origin).resolve() == file:
            return importlib.import_module(file.stem)
    name = f"mmrl_file_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def format_error(error: BaseException, where: str) -> str:
    """Format the kind and the message of an exception, with the last line of the user's own code, not of a library."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    ours = Path(__file__).parents[1]
    user_frames = [frame for frame in frames if frame.filename == where or ours not in Path(frame.filename).parents]
    user_frames = [frame for frame in user_frames if not frame.filename.startswith("<")]
    if isinstance(error, SyntaxError) or not user_frames:
        return text
    libraries = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib")]
    user_frames = [
        frame for frame in user_frames if not {*libraries} & {*Path(frame.filename).resolve().parents}
    ] or user_frames
    return f"{text} ({Path(user_frames[-1].filename).name}, line {user_frames[-1].lineno}: {user_frames[-1].line})"


def _describe(owner: Any) -> str:
    return getattr(owner, "__file__", None) or getattr(owner, "__name__", type(owner).__name__)


def _suggest(owner: Any, name: str) -> str:
    names = [key for key, value in vars(owner).items() if callable(value) and not key.startswith("_")]
    near = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(names[:10])}" if names else ""
