"""Read classes and their docstrings from source files, so that no package is imported."""

from __future__ import annotations

import ast
import functools
import importlib.util
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

Definition = ast.ClassDef | ast.FunctionDef


@dataclass(frozen=True)
class Source:
    """A class or a function where it is defined.

    Args:
        path: its import path, of the module that defines it.
        node: its syntax tree.
    """

    path: str
    node: Definition

    @property
    def module(self) -> str:
        return self.path.rpartition(".")[0]

    @property
    def summary(self) -> str:
        """The first paragraph of its docstring in one line; "" without a docstring."""
        return " ".join((ast.get_docstring(self.node) or "").split("\n\n")[0].split())

    @property
    def bases(self) -> list[Source]:
        """The base classes that can be found."""
        names = [ast.unparse(base).partition("[")[0] for base in getattr(self.node, "bases", [])]
        sources = [find_source(_expand_name(self.module, name)) for name in names]
        return [source for source in sources if source is not None]

    def is_subclass(self, base: str) -> bool:
        """Whether it is or inherits from the class that is defined at this import path."""
        return self.path == base or any(source.is_subclass(base) for source in self.bases)

    @property
    def abstract_methods(self) -> frozenset[str]:
        """Names of abstract methods that neither it nor a base defines."""
        family = list(self.family())
        abstract = {
            node.name
            for source in family
            for node in source.node.body
            if isinstance(node, ast.FunctionDef)
            and any("abstractmethod" in ast.unparse(d) for d in node.decorator_list)
        }
        return frozenset(name for name in abstract if not any(name in _defined_names(source.node) for source in family))

    def family(self) -> Iterator[Source]:
        """Iterate over the class itself and the classes that it inherits from."""
        yield self
        for base in self.bases:
            yield from base.family()


def find_source(path: str) -> Source | None:
    """The definition behind an import path, also where a package only imports it; None where there is none."""
    module, _, name = path.rpartition(".")
    tree = _parse(module) if module else None
    if tree is None:
        return None
    for node in tree.body:
        if isinstance(node, Definition) and node.name == name:
            return Source(path, node)
    imported = _imported_names(module).get(name)
    return find_source(imported) if imported and imported != path else None


def find_subclasses(packages: Iterable[str], base: str) -> list[Source]:
    """The public concrete subclasses that the modules of packages define, by import path."""
    root = find_source(base)
    subclasses = []
    for module in (module for package in packages for module in _walk_modules(package)):
        for node in _parse(module).body:  # type: ignore[union-attr]
            if root is not None and isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                source = Source(f"{module}.{node.name}", node)
                if source.path != root.path and source.is_subclass(root.path) and not source.abstract_methods:
                    subclasses.append(source)
    return sorted(subclasses, key=lambda source: (source.module, source.node.name))


def find_missing_packages(module: str) -> list[str]:
    """Packages that a module imports when it is loaded and that are not installed, modules of its own package too."""
    package, missing, waiting, modules = module.partition(".")[0], set(), [module], set()
    while waiting:
        name = waiting.pop()
        if name in modules or (tree := _parse(name)) is None:
            continue
        modules.add(name)
        for node in tree.body:
            targets = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                targets = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
            waiting += [target for target in targets if target.partition(".")[0] == package]
            missing |= {target.partition(".")[0] for target in targets if _find_root(target.partition(".")[0]) is None}
    return sorted(missing)


def find_environment(source: Source) -> tuple[str, str] | None:
    """The virtual environment that a simulator's class names, and the Makefile's target that makes it."""
    stated = {
        node.target.id: node.value.value
        for node in source.node.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    names = (stated.get("environment"), stated.get("make_target"))
    return names if all(isinstance(each, str) for each in names) else None  # type: ignore[return-value]


@functools.cache
def _find_root(package: str) -> Path | None:
    """The folder of an installed package, or the file of a single module; parents of a name are never imported."""
    spec = importlib.util.find_spec(package)
    if spec is None:
        return None
    folders = spec.submodule_search_locations
    return Path(next(iter(folders))) if folders else Path(spec.origin or package)


def _find_file(module: str) -> Path | None:
    root, *rest = module.split(".")
    folder = _find_root(root)
    if folder is None:
        return None
    place = folder.joinpath(*rest)
    return next((file for file in (place / "__init__.py", place.with_suffix(".py")) if file.is_file()), None)


@functools.cache
def _parse(module: str) -> ast.Module | None:
    file = _find_file(module)
    return None if file is None else ast.parse(file.read_bytes())


@functools.cache
def _imported_names(module: str) -> dict[str, str]:
    """Import paths of the names that a module imports."""
    tree = _parse(module)
    names: dict[str, str] = {}
    file = _find_file(module)
    package = module if file is not None and file.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.ImportFrom):
            above = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            source = ".".join(part for part in (above, node.module) if part)
            names |= {alias.asname or alias.name: f"{source}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.asname or alias.name: alias.name for alias in node.names}
    return names


def _expand_name(module: str, name: str) -> str:
    """The import path of a name as a module writes it."""
    head, dot, rest = name.partition(".")
    return f"{_imported_names(module)[head]}{dot}{rest}" if head in _imported_names(module) else f"{module}.{name}"


def _walk_modules(package: str) -> Iterator[str]:
    folder = _find_root(package.partition(".")[0])
    if folder is not None:
        place = folder.joinpath(*package.split(".")[1:])
        for file in sorted(place.rglob("*.py")):
            parts = file.relative_to(folder).with_suffix("").parts
            yield ".".join((package.partition(".")[0], *parts)).removesuffix(".__init__")


def _defined_names(node: Definition) -> set[str]:
    """Names that a class body gives a value; an abstract method has none."""
    names = set()
    for child in node.body:
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            names |= {child.name} - {child.name for d in child.decorator_list if "abstractmethod" in ast.unparse(d)}
        elif isinstance(child, ast.Assign):
            names |= {target.id for target in child.targets if isinstance(target, ast.Name)}
        elif isinstance(child, ast.AnnAssign) and child.value is not None and isinstance(child.target, ast.Name):
            names.add(child.target.id)
    return names
