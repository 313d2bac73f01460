"""Put the code of a changed source into the functions of a module that is imported already."""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType


def replace_functions(module: ModuleType, code: CodeType) -> None:
    """Give every function of the module its code of `code`, so that all who have imported one run the new."""
    new = {(part.co_qualname, part.co_firstlineno): part for part in _codes(code)}
    for function in _functions(vars(module), module.__name__):
        key = function.__code__.co_qualname, function.__code__.co_firstlineno
        if key not in new:
            continue
        part, names = new[key], function.__code__.co_freevars
        if not part.co_freevars:  # a fault can leave out the only use of super() or of another closure
            part = part.replace(co_freevars=names)
        if part.co_freevars == names:
            function.__code__ = part


def _codes(code: CodeType) -> Iterator[CodeType]:
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield part
            yield from _codes(part)


def _functions(names: dict, module: str) -> Iterator[FunctionType]:
    """Functions and methods, also behind decorators, properties and class methods."""
    for value in list(names.values()):
        if isinstance(value, type) and value.__module__ == module:
            yield from _functions(dict(vars(value)), module)
        for layer in (value, *(getattr(value, name, None) for name in ("fget", "func", "__func__", "__wrapped__"))):
            while layer is not None:
                if isinstance(layer, FunctionType) and layer.__module__ == module:
                    yield layer
                layer = getattr(layer, "__wrapped__", None)
