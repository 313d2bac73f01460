"""Classes of import paths, and parameters of their constructors, through **kwargs that are passed to a base class."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from hydra.utils import get_class


def import_class(path: str | None) -> Any:
    """Import the class of a `_target_`; None if it cannot be imported."""
    try:
        return get_class(path) if path else None
    except Exception:  # the typed parser reports it with a better message
        return None


def constructor_parameters(part: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the parameters of a constructor by name; in place of **kwargs are the parameters of the base class.

    A constructor that takes any name, and passes them to no class that lists them, keeps its **kwargs. The
    parameters of a function, which a configuration may name by mistake, are its own.
    """
    if not isinstance(part, type):
        return dict(inspect.signature(part).parameters)
    found: dict[str, inspect.Parameter] = {}
    for base in (each for each in part.__mro__ if "__init__" in vars(each) and each is not object):
        own = list(inspect.signature(base.__init__).parameters.values())[1:]  # type: ignore[misc]
        found |= {parameter.name: parameter for parameter in own if parameter.name not in found}
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in own):
            variadic = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
            return {name: parameter for name, parameter in found.items() if parameter.kind not in variadic}
    return found
