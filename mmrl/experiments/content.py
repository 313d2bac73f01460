"""Content hash of a run: its composed configuration and the source code that it reaches.

Runs with equal hashes differ in their seed only. A stored result with another hash than today's is stale.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from mmrl.config.compose import CONF, compose

OWN = ("mmrl", "tasks", "sims")
MACHINERY = tuple(
    f"mmrl.{name}"
    for name in (
        *("core.types", "core.batch", "core.columns", "config"),
        *("data", "learners", "capture", "callbacks", "engines", "policies", "distributed"),
    )
)
"""What carries every recipe. It is held to its own laws, and a change in it does not make all results stale."""
HASHED = ("mmrl.learners.phases", "mmrl.data.replay_buffer")
"""Parts of these folders that a recipe chooses."""
FUNCTION = re.compile(rf"(?:{'|'.join(OWN)})(?:\.\w+)+:\w+")
"""A function that a configuration names by its module, as in "mmrl.rewards.shaping:exact_within_limit"."""
CAPTURED = re.compile(r"\$\{captured:[^,{}]*,([^,{}]*)\}")


def hash_content(words: Sequence[str]) -> str:
    """Hash the runs with these overrides, including warm-start stages, without seed and folder."""
    return _hash(tuple(words))


@functools.cache
def _hash(words: tuple[str, ...]) -> str:
    config = training_config(words)
    text = json.dumps([config, collect_sources(sorted(set(find_targets(config))))], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def training_config(words: Sequence[str]) -> dict[str, Any]:
    """Compose the configuration without recording callbacks; `stages` has that of each warm-start stage.

    The order of keys is that of the files.
    """
    return _training_config(tuple(words))


@functools.cache
def _training_config(words: tuple[str, ...]) -> dict[str, Any]:
    plain: Any = _without_capture(OmegaConf.to_container(compose(words), resolve=False))
    trainer = plain["trainer"]
    callbacks = trainer.get("callbacks") or {}
    start = callbacks.get("warm_start") or {}
    unread = ("callbacks", "logger", "strategy")  # a run makes the same numbers with every strategy
    return {
        "trainer": {name: value for name, value in trainer.items() if name not in unread},
        "callbacks": {name: value for name, value in callbacks.items() if name not in _default_callbacks()},
        "model": plain["model"],
        "data": plain["data"],
        "warm_start": {name: start.get(name) for name in ("checkpoint", "frozen_only")},
        "stages": {
            name: training_config([word for word in stage if not word.startswith("seed=")])  # also "seed=1${seed}"
            for name, stage in stage_overrides(plain).items()
        },
    }


def _without_capture(node: Any) -> Any:
    """Replace each ${captured:A,B} by class B, because a captured graph computes the same numbers."""
    if isinstance(node, dict):
        return {key: _without_capture(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_without_capture(value) for value in node]
    return CAPTURED.sub(r"\1", node) if isinstance(node, str) else node


def stage_overrides(plain: dict[str, Any]) -> dict[str, list[str]]:
    """Return the overrides of each warm-start stage of a composed configuration."""
    start = (plain["trainer"].get("callbacks") or {}).get("warm_start") or {}
    return {name: [*start["common"], *words] for name, words in (start.get("stages") or {}).items() if words}


@functools.cache
def _default_callbacks() -> frozenset[str]:
    """Return the callbacks of every run, which only record; those that a recipe adds may change its training."""
    return frozenset(OmegaConf.load(CONF / "trainer" / "default.yaml")["callbacks"])  # type: ignore[index]


def find_targets(node: Any) -> Iterator[str]:
    """Find every import path that a configuration names: classes by `_target_`, functions by "module:name"."""
    if isinstance(node, str):
        if FUNCTION.fullmatch(node):
            yield node.replace(":", ".")
    elif isinstance(node, dict):
        if isinstance(node.get("_target_"), str):
            yield node["_target_"]
        for value in node.values():
            yield from find_targets(value)
    elif isinstance(node, list):
        for value in node:
            yield from find_targets(value)


def collect_sources(paths: Sequence[str]) -> dict[str, str]:
    """Collect the code of each definition that these import paths reach, by its full name.

    A definition reaches what it refers to by name, in its own module or through an import. Comments, docstrings,
    annotations, layout and error messages are removed.
    """
    sources: dict[str, str] = {}
    waiting = [where for path in paths for where in _resolve(path)]
    while waiting:
        module, name = waiting.pop()
        full = f"{module}.{name}"
        if full in sources:
            continue
        sources[full], references = _definition(module, name)
        waiting += references
    return dict(sorted(sources.items()))


@functools.cache
def _definition(module: str, name: str) -> tuple[str, list[tuple[str, str]]]:
    """Return the code of a definition without its prose, and the names that it refers to."""
    read = _module(module)
    code = _RemoveProse().visit(ast.parse(ast.unparse(read.definitions[name])))
    return ast.dump(code), list(_references(code, read))


@dataclass(frozen=True)
class _Module:
    name: str
    definitions: dict[str, ast.stmt]
    imports: dict[str, str]  # local name -> full path


@functools.cache
def _file(name: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        return None
    return Path(spec.origin) if spec is not None and spec.origin and spec.origin.endswith(".py") else None


@functools.cache
def _module(name: str) -> _Module:
    file = _file(name)
    assert file is not None
    definitions: dict[str, ast.stmt] = {}
    imports: dict[str, str] = {}
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            definitions[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                definitions |= {inner.id: node for inner in ast.walk(target) if isinstance(inner, ast.Name)}
        elif isinstance(node, ast.ImportFrom | ast.Import):
            imports |= _list_imports(node)
    return _Module(name, definitions, imports)


def _list_imports(node: ast.ImportFrom | ast.Import) -> dict[str, str]:
    """Return the full path of each name that an import binds, where the name stands for one module or definition."""
    if isinstance(node, ast.ImportFrom):
        return {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return {alias.asname: alias.name for alias in node.names if alias.asname}


def _resolve(path: str) -> list[tuple[str, str]]:
    """Resolve an import path to [(module, name)]; empty for other packages and excluded modules."""
    if path.split(".")[0] not in OWN or (_within(path, MACHINERY) and not _within(path, HASHED)):
        return []
    parts = path.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        module, name = ".".join(parts[:cut]), parts[cut]
        if _file(module) is None:
            continue
        read = _module(module)
        if name in read.definitions:
            return [(module, name)]
        if name in read.imports:
            return _resolve(".".join([read.imports[name], *parts[cut + 1 :]]))
        return []
    return []


def _within(path: str, packages: Sequence[str]) -> bool:
    return any(path == each or path.startswith(f"{each}.") for each in packages)


def _references(node: ast.AST, module: _Module) -> Iterator[tuple[str, str]]:
    imports = dict(module.imports)
    for inner in ast.walk(node):  # inside a function, where a package is only needed by some
        if isinstance(inner, ast.ImportFrom | ast.Import):
            imports |= _list_imports(inner)
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name):
            if inner.value.id in imports:  # a name in an imported module, or an attribute of an imported class
                yield from _resolve(f"{imports[inner.value.id]}.{inner.attr}")
        elif isinstance(inner, ast.Name):
            if inner.id in module.definitions:
                yield module.name, inner.id
            elif inner.id in imports:
                yield from _resolve(imports[inner.id])


class _RemoveProse(ast.NodeTransformer):
    """Remove docstrings, annotations, and the texts of raised errors."""

    def visit_Raise(self, node: ast.Raise) -> ast.Raise:
        return _RemoveTexts().visit(node)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AnnAssign:
        node.annotation = ast.Constant(None)
        self.generic_visit(node)
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            node.body = [
                each for each in node.body if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
            ] or [ast.Pass()]
        return super().generic_visit(node)


class _RemoveTexts(ast.NodeTransformer):
    """Replace each string by an empty one."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.Constant:
        return ast.Constant("")

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        return ast.Constant("") if isinstance(node.value, str) else node
