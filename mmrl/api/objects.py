"""Objects that a program passes to `mmrl.fit`, under an import path each, so that a configuration can name them.

A class or function of a module is named by its own path. An instance, a lambda and whatever the program itself defines
(`__main__`) has no path that another process could import: it is kept here, in this process alone.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_OBJECTS: dict[str, Any] = {}  # by name: the object
_IMPORTS: dict[str, Any] = {}  # by name: what its import path gives, the function or a class that returns the instance


def import_path(value: Any) -> str | None:
    """The path by which every process can import a class or function; None where there is none."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not module or not name or module == "__main__" or "<" in name:
        return None
    try:
        result: Any = importlib.import_module(module)
        for part in name.split("."):
            result = getattr(result, part)
    except (ImportError, AttributeError):
        return None
    return f"{module}.{name}" if result is value else None


def keep_part(part: Any) -> str:
    """Keep an instance, and return the import path of a class without arguments whose only instance it is.

    A configuration names classes; this one is a subclass of the instance's class.
    """
    return _keep(part, type(part).__qualname__, lambda name: _class_of(part, name))


def keep_function(function: Any) -> str:
    """Keep a function or another callable, and return an import path that gives it in this process."""
    return _keep(function, getattr(function, "__qualname__", type(function).__name__), lambda name: function)


def _keep(value: Any, title: str, make: Callable[[str], Any]) -> str:
    stem = f"{_program()}__{re.sub(r'[^0-9a-zA-Z]+', '_', title).strip('_')}"
    name, number = stem, 1
    while name in _OBJECTS and _OBJECTS[name] is not value:
        number += 1
        name = f"{stem}_{number}"
    if name not in _OBJECTS:
        _OBJECTS[name], _IMPORTS[name] = value, make(name)
    return f"{__name__}.{name}"


def is_kept(text: str) -> bool:
    """Whether an argument of a configuration names an object that is kept here."""
    return f"{__name__}." in text


def _program() -> str:
    file = getattr(sys.modules["__main__"], "__file__", None)
    return re.sub(r"\W", "_", Path(file).stem) if file else "interactive"


def _class_of(value: Any, name: str) -> type:
    kind: Any = type(value)
    metaclass: Any = type(kind)
    members: dict[str, Any] = {"__new__": lambda cls: value, "__init__": lambda self: None, "__module__": __name__}
    for method in ("predicts", "provides"):  # of policies: they are asked for the constructor's arguments
        if hasattr(kind, method):
            members[method] = _ask(getattr(kind, method), value)
    return metaclass(name, (kind,), members)


def _ask(method: Callable[[Any], Any], value: Any) -> classmethod:
    """The class method with the object's attributes in place of constructor arguments."""
    return classmethod(lambda cls, init_args: method(_Attributes(value)))


class _Attributes(dict[str, Any]):
    """The attributes of an object as the constructor arguments of the same names."""

    def __init__(self, value: Any):
        super().__init__()
        self._value = value

    def get(self, name: str, default: Any = None) -> Any:
        return getattr(self._value, name, default)

    def __getitem__(self, name: str) -> Any:
        return getattr(self._value, name)

    def __contains__(self, name: object) -> bool:
        return hasattr(self._value, str(name))


def __getattr__(name: str) -> Any:
    if name in _IMPORTS:
        return _IMPORTS[name]
    if "__" in name.strip("_"):
        program, _, title = name.partition("__")
        raise AttributeError(
            f"{title} was passed to mmrl.fit by the Python program {program!r} and exists in that process alone; run "
            "that program again (ckpt_path=... resumes), or define it in a module that can be imported"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
