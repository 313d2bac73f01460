"""Read the arguments of classes and their meanings from source files, without importing the classes."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mmrl.commands.catalogue.sources import Source

SECTION = re.compile(r"(?:^|\n)Args:\n((?:[ \t]+.*\n?|\n(?=[ \t]))*)")


@dataclass(frozen=True)
class Argument:
    name: str
    type: str
    default: str  # "required" where there is none
    meaning: str


def docstring(source: Source) -> str:
    return ast.get_docstring(source.node) or ""


def split_docstring(doc: str) -> tuple[str, str]:
    """The first paragraph of a docstring, and what follows it without the section `Args:`."""
    first, _, rest = doc.partition("\n\n")
    return " ".join(first.split()), SECTION.sub("\n", rest).strip()


def arguments(source: Source) -> list[Argument]:
    """What the constructor takes: parameters of `__init__` (with **, also of a base's), or fields of a dataclass."""
    known = list(_ancestors(source))
    meanings: dict[str, str] = {}
    for found in reversed(known):
        meanings |= _meanings(docstring(found))
    fields: dict[str, Sequence[str]] = {}
    for found in known:
        init = next((item for item in methods(found) if item.name == "__init__"), None)
        if init is not None:
            fields = {**fields, **{name: rest for name, *rest in _parameters(init) if name not in fields}}
            if not init.args.kwarg:
                break
        elif any(ast.unparse(item).startswith("dataclass") for item in found.node.decorator_list):
            fields = {**_fields(found), **fields}
    return [Argument(name, *rest, meanings.get(name, "")) for name, rest in fields.items()]


def methods(source: Source) -> list[ast.FunctionDef]:
    return [item for item in source.node.body if isinstance(item, ast.FunctionDef)]


def _ancestors(source: Source) -> Iterator[Source]:
    """A class and its bases, nearest first; those of other libraries have no docstring that a page could show."""
    yield source
    for base in source.bases:
        if base.path.startswith(("mmrl.", "tasks.", "sims.")):
            yield from _ancestors(base)


def _meanings(doc: str) -> dict[str, str]:
    section = SECTION.search(doc)
    found: dict[str, str] = {}
    name = ""
    for line in inspect.cleandoc("\n" + section[1]).splitlines() if section else ():
        start = re.match(r"(\w+(?:, \w+)*): (.*)", line)
        if start is not None:
            name = start[1]
            found[name] = start[2]
        elif name:
            found[name] += " " + line.strip()
    return {single: text for names, text in found.items() for single in names.split(", ")}


def _parameters(init: ast.FunctionDef) -> list[tuple[str, str, str]]:
    positional = init.args.args[1:]
    defaults = [None] * (len(positional) - len(init.args.defaults)) + list(init.args.defaults)
    pairs = [*zip(positional, defaults), *zip(init.args.kwonlyargs, init.args.kw_defaults)]
    return [
        (item.arg, ast.unparse(item.annotation) if item.annotation else "", _default(value)) for item, value in pairs
    ]


def _fields(source: Source) -> dict[str, tuple[str, str]]:
    return {
        item.target.id: (ast.unparse(item.annotation), _default(item.value))
        for item in source.node.body
        if isinstance(item, ast.AnnAssign)
        and isinstance(item.target, ast.Name)
        and "ClassVar" not in ast.unparse(item.annotation)
        and "init=False" not in (ast.unparse(item.value) if item.value else "")
    }


def _default(node: ast.expr | None) -> str:
    if node is None:
        return "required"
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "field":
        node = next((item.value for item in node.keywords if item.arg == "default"), node)
    text = ast.unparse(node)
    factory = re.fullmatch(r"field\(default_factory=(?:lambda: )?(.*)\)", text)
    return {"dict": "{}", "list": "[]"}.get(factory[1], factory[1]) if factory else text
