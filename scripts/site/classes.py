"""Read classes, their arguments and docstrings from source files by `ast`, without importing them."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Argument:
    name: str
    type: str
    default: str  # "required" where there is none
    meaning: str


@dataclass
class Class:
    """One class: where it is, what it says, and the classes that it is made of."""

    path: str  # import path, mmrl.annotators.gae.GAE
    file: Path
    node: ast.ClassDef
    bases: list[str]  # import paths

    @property
    def name(self) -> str:
        return self.node.name

    @cached_property
    def doc(self) -> str:
        return inspect.cleandoc(ast.get_docstring(self.node) or "")

    @property
    def methods(self) -> list[ast.FunctionDef]:
        return [item for item in self.node.body if isinstance(item, ast.FunctionDef)]

    @property
    def open_methods(self) -> set[str]:
        """Names of the methods that its own body leaves to others."""
        return {method.name for method in self.methods if "abstractmethod" in map(ast.unparse, method.decorator_list)}

    @property
    def defined(self) -> set[str]:
        """Names of the methods that its own body defines."""
        return {method.name for method in self.methods} - self.open_methods

    @property
    def dataclass(self) -> bool:
        return any(ast.unparse(item).startswith("dataclass") for item in self.node.decorator_list)


class Sources:
    """All top-level classes of packages, by import path."""

    def __init__(self, *packages: str, root: Path = ROOT):
        self.classes: dict[str, Class] = {}
        for file in sorted(path for package in packages for path in (root / package).rglob("*.py")):
            module = ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
            tree = ast.parse(file.read_text())
            names = _imports(tree)
            for node in tree.body:
                if isinstance(node, ast.ClassDef):
                    names[node.name] = path = f"{module}.{node.name}"
                    bases = [_resolve(ast.unparse(base), names) for base in node.bases]
                    self.classes[path] = Class(path, file, node, bases)

    def ancestors(self, path: str) -> Iterator[str]:
        """Import paths of a class and its bases, nearest first; those of other packages too."""
        yield path
        for base in self.classes[path].bases if path in self.classes else ():
            yield from self.ancestors(base)

    def of(self, *bases: str) -> list[Class]:
        """The classes with one of these bases that can be built; a base that ends in a dot is a whole package."""
        packages = tuple(base for base in bases if base.endswith("."))
        found = []
        for path, part in sorted(self.classes.items()):
            derived = any(item in bases or item.startswith(packages) for item in self.ancestors(path))
            if derived and path not in bases and not part.name.startswith("_") and not self._left_open(path):
                found.append(part)
        return found

    def _left_open(self, path: str) -> set[str]:
        """Names of the methods that no class among a class and its bases defines."""
        known = [self.classes[item] for item in self.ancestors(path) if item in self.classes]
        return set().union(*(item.open_methods for item in known)) - set().union(*(item.defined for item in known))

    def arguments(self, path: str) -> list[Argument]:
        """What the constructor takes: of `__init__`, or the fields of the dataclass and its bases."""
        known = [self.classes[item] for item in self.ancestors(path) if item in self.classes]
        meanings: dict[str, str] = {}
        for found in reversed(known):
            meanings.update(_meanings(found.doc))
        fields: dict[str, tuple[str, str]] = {}
        for found in known:
            init = next((method for method in found.methods if method.name == "__init__"), None)
            if init is not None and not fields:
                return [Argument(name, *rest, meanings.get(name, "")) for name, *rest in _parameters(init)]
            if found.dataclass:
                fields = {**_fields(found.node), **fields}
        return [Argument(name, *rest, meanings.get(name, "")) for name, rest in fields.items()]


def split_doc(doc: str) -> tuple[str, str]:
    """The first paragraph of a docstring, and what follows it without the section `Args:`."""
    first, _, rest = doc.partition("\n\n")
    rest = re.sub(r"(?:^|\n)Args:\n(?:[ \t]+.*\n?|\n(?=[ \t]))*", "\n", rest)
    return " ".join(first.split()), rest.strip()


def _meanings(doc: str) -> dict[str, str]:
    section = re.search(r"(?:^|\n)Args:\n((?:[ \t]+.*\n?|\n(?=[ \t]))*)", doc)
    if section is None:
        return {}
    found: dict[str, str] = {}
    name = ""
    for line in inspect.cleandoc("\n" + section[1]).splitlines():
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
    return [(item.arg, _text(item.annotation), _default(default)) for item, default in pairs]


def _fields(node: ast.ClassDef) -> dict[str, tuple[str, str]]:
    return {
        item.target.id: (ast.unparse(item.annotation), _default(item.value))
        for item in node.body
        if isinstance(item, ast.AnnAssign)
        and isinstance(item.target, ast.Name)
        and "ClassVar" not in ast.unparse(item.annotation)
        and "init=False" not in (ast.unparse(item.value) if item.value else "")
    }


def _default(node: ast.expr | None) -> str:
    if node is None:
        return "required"
    text = ast.unparse(node)
    factory = re.fullmatch(r"field\(default_factory=(?:lambda: )?(.*)\)", text)
    return {"dict": "{}", "list": "[]"}.get(factory[1], factory[1]) if factory else text


def _text(node: ast.expr | None) -> str:
    return ast.unparse(node) if node is not None else ""


def _imports(tree: ast.Module) -> dict[str, str]:
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.update({item.asname or item.name: f"{node.module}.{item.name}" for item in node.names})
        elif isinstance(node, ast.Import):
            names.update({item.asname: item.name for item in node.names if item.asname})
    return names


def _resolve(name: str, names: dict[str, str]) -> str:
    first, dot, rest = re.sub(r"\[.*", "", name).partition(".")
    return names.get(first, first) + dot + rest
