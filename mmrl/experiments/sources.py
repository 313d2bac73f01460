"""Papers of parts: the `Source:` lines in the docstrings of classes and functions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

Documented = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class SourcedPart:
    """A class or function whose docstring names what it follows.

    Args:
        name: the function or class, a method with its class in front.
        file: relative to the checkout.
        summary: the first line of the docstring.
        source: the text after `Source:`, on one line.
    """

    name: str
    file: str
    summary: str
    source: str


def read_sources(root: Path, folders: Sequence[str]) -> list[SourcedPart]:
    """Read the parts with a `Source:` in all Python files of folders of a checkout, a folder after the other."""
    files = [path for folder in folders for path in sorted((root / folder).rglob("*.py"), key=lambda p: (p.parent, p))]
    return [part for file in files for part in _read_file(root, file)]


def _read_file(root: Path, file: Path) -> Iterator[SourcedPart]:
    text = file.read_text()
    if "Source:" not in text:
        return
    for name, node in _walk(ast.parse(text)):
        docstring = ast.get_docstring(node) or ""
        match = re.search(r"(?<!`)Source:\s*(.+?)(?=\n\s*\n|\n\s*Args:|\Z)", docstring, re.DOTALL)
        if match:
            summary = " ".join(docstring.split("\n\n")[0].split(" Source:")[0].split())
            yield SourcedPart(name, file.relative_to(root).as_posix(), summary, " ".join(match[1].split()))


def _walk(node: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[tuple[str, Documented]]:
    for child in node.body:
        if isinstance(child, Documented):
            yield prefix + child.name, child
        if isinstance(child, ast.ClassDef):
            yield from _walk(child, f"{prefix}{child.name}.")
