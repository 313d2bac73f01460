"""What a program that is counted may use: builtins, modules, and the attributes of values by their exact type.

An allow-list: whatever is missing here is not counted. The file is run as text inside of the sandbox, so it needs the
standard library alone.
"""

import bisect
import builtins
import collections
import copy
import fractions
import functools
import heapq
import itertools
import json
import math
import operator
import re
import string
import typing

EXCEPTIONS = {
    name: value for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, Exception)
}
CLASSES = {
    *(bool, bytes, complex, dict, float, frozenset, int, list, range, set, slice, str, tuple),
    *(collections.Counter, collections.OrderedDict, collections.defaultdict, collections.deque, fractions.Fraction),
}
"""Classes whose values and methods a program may use."""


class Uncounted(BaseException):
    """The program has a form that is not counted. A program cannot catch it."""


HIDDEN = {"format", "format_map", "from_callable"}
"""Methods that read attributes whose names are texts."""


def type_of(value):
    """`type` with one argument, for values of known classes."""
    if type(value) not in CLASSES:
        raise Uncounted(f"type {type(value).__name__}")
    return type(value)


def ignore(*values, **named):
    """`print`: what a program prints is dropped."""


BUILTINS = {
    **{kind.__name__: kind for kind in (bool, bytes, complex, dict, float, frozenset, int, list, range, set, slice)},
    **{kind.__name__: kind for kind in (str, tuple, enumerate, filter, map, reversed, zip)},
    **{name: getattr(builtins, name) for name in ("abs", "all", "any", "ascii", "bin", "callable", "chr", "divmod")},
    **{name: getattr(builtins, name) for name in ("hash", "hex", "isinstance", "issubclass", "iter", "len", "max")},
    **{
        name: getattr(builtins, name) for name in ("min", "next", "oct", "ord", "pow", "repr", "round", "sorted", "sum")
    },
    **EXCEPTIONS,
    "type": type_of,
    "print": ignore,
    "Ellipsis": ...,
    "NotImplemented": NotImplemented,
    "__name__": "program",
}
PUBLIC = {
    kind: frozenset(name for name in dir(kind) if not name.startswith("_")) - HIDDEN
    for kind in (*CLASSES, re.Pattern, re.Match, type({}.keys()), type({}.items()), type({}.values()))
}
"""Attributes of values, by their type."""


class Module:
    """Module as a program has it: some of its functions and constants."""

    def __init__(self, names):
        self.names = names


def _list_public(module, *without):
    return {name: value for name, value in vars(module).items() if not name.startswith("_") and name not in without}


def _select(module, *names):
    return {name: getattr(module, name) for name in names}


MODULES = {
    "bisect": _list_public(bisect),
    "collections": _select(collections, "Counter", "OrderedDict", "defaultdict", "deque"),
    "copy": _select(copy, "copy", "deepcopy"),
    "fractions": _select(fractions, "Fraction"),
    "functools": _select(functools, "reduce", "cmp_to_key", "lru_cache", "cache", "partial"),
    "heapq": _select(
        heapq, "heapify", "heappush", "heappop", "heappushpop", "heapreplace", "merge", "nlargest", "nsmallest"
    ),
    "itertools": _list_public(itertools),
    "json": _select(json, "loads", "dumps"),
    "math": _list_public(math),
    "operator": _list_public(operator, "attrgetter", "methodcaller", "call"),
    "re": {
        **_select(re, "compile", "findall", "finditer", "fullmatch", "match", "search", "split", "sub", "subn"),
        **_select(re, "escape", "I", "IGNORECASE", "M", "MULTILINE", "S", "DOTALL", "X", "VERBOSE", "A", "ASCII"),
    },
    "string": _select(
        string,
        *("ascii_letters", "ascii_lowercase", "ascii_uppercase", "capwords", "digits", "hexdigits", "octdigits"),
        *("printable", "punctuation", "whitespace"),
    ),
    "typing": _select(typing, "Any", "Callable", "Dict", "Iterable", "Iterator", "List", "Optional", "Sequence")
    | _select(typing, "Set", "Tuple", "Union", "FrozenSet", "Deque", "DefaultDict", "Mapping"),
}
"""Modules by their names."""


def import_module(name):
    """Return a module that a program may import. Raises Uncounted."""
    if name not in MODULES:
        raise Uncounted(f"import {name}")
    return Module(MODULES[name])


def find_attribute(value, name):
    """Return an attribute of a value. Raises Uncounted where a program may not have it."""
    if type(value) is Module:
        if name not in value.names:
            raise Uncounted(f"attribute {name}")
        return value.names[name]
    if isinstance(value, BaseException):
        allowed = name == "args"
    elif isinstance(value, type):
        allowed = value in CLASSES and name in PUBLIC[value]
    else:
        allowed = name in PUBLIC.get(type(value), ())
    if not allowed:
        raise Uncounted(f"attribute {name}")
    return getattr(value, name)
