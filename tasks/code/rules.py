"""Which names a program of a task without files and processes may use, read from its syntax tree.

The driver counts a program's operations in the program's own process, so nothing may lead a program there: no frames,
no attributes by names that are texts, no texts that become code. The file is run as text inside of the sandbox, so it
needs the standard library alone.
"""

import ast
import importlib
import types

FRAMES = {
    *("ag_await", "ag_code", "ag_frame", "cr_await", "cr_code", "cr_frame", "cr_origin", "gi_code", "gi_frame"),
    *("gi_yieldfrom", "f_back", "f_builtins", "f_code", "f_globals", "f_locals", "f_trace", "tb_frame", "tb_next"),
}
"""Attributes that lead to the variables of a program's callers."""
BY_NAME = {
    *("Formatter", "attrgetter", "delattr", "getattr", "methodcaller", "no_type_check", "no_type_check_decorator"),
    *("setattr", "update_wrapper", "vars", "wraps"),
}
"""Functions that read or write attributes whose names are texts. str.format reads them too, but gives texts."""
FROM_TEXT = {"compile", "eval", "exec", "get_type_hints", "singledispatch", "singledispatchmethod"}
"""Functions that execute texts, such as annotations."""
BANNED = {
    *("__import__", "breakpoint", "builtins", "ctypes", "gc", "globals", "importlib", "input", "inspect", "locals"),
    *("modules", "open", "os", "settrace", "signal", "subprocess", "sys", "threading", *FRAMES, *BY_NAME, *FROM_TEXT),
}
"""Names that such a program does not need."""
IMPORTS = {
    *("bisect", "collections", "copy", "fractions", "functools", "heapq", "itertools", "math", "operator", "re"),
    *("string", "typing"),
}
"""Modules that it may import. dataclasses reads fields by their names and executes texts made of them."""
INNER = {"contextlib", "copyreg", "enum", "types", "warnings"}
"""Other modules that these have as attributes."""
KINDS = ("_private", "_module", "_pattern")
"""A private attribute, a module that is not in IMPORTS, and a class pattern with places, as in `case Point(x, y)`: it
reads attributes whose names are texts of the class."""


def find_banned(tree):
    """Return the first name in a program that is banned, or its kind; None if there is none."""
    for node in ast.walk(tree):
        for name in list_names(node):
            if name in BANNED or name in KINDS or (name.startswith("__") and name != "__name__"):
                return name
    return None


def list_names(node):
    """List the names in a node of a syntax tree that decide whether it is banned, and kinds of it that are."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        return [*list_attribute(node.attr), "_module" if node.attr in INNER else ""]
    if isinstance(node, ast.MatchClass):
        names = [name for attribute in node.kwd_attrs for name in list_attribute(attribute)]
        return [*names, "_pattern" if node.patterns else ""]
    if isinstance(node, ast.Import):
        return ["" if alias.name in IMPORTS else "_module" for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        names = [alias.name for alias in node.names]
        inside = node.module in IMPORTS and not any(name in INNER or name.startswith(("_", "*")) for name in names)
        return [*names, "" if inside else "_module"]
    return []


def list_attribute(name):
    """List an attribute's name, and its kind if it is private."""
    return [name, "_private" if name.startswith("_") else ""]


class Fixed(types.ModuleType):
    """Module that a program cannot change. With another `isinstance` or `str` in them, functions of modules would hand
    attributes by name to a program, or execute its texts."""

    __dict__ = property(lambda self: {})  # copy.copy updates the __dict__ of an object that a program names

    def __setattr__(self, name, value):
        raise AttributeError("a program must not change a module")

    def __delattr__(self, name):
        raise AttributeError("a program must not change a module")


def fix_modules():
    """Keep the program of this process from changing the modules that it may import."""
    for name in IMPORTS:
        importlib.import_module(name).__class__ = Fixed
