"""Render docs/columns.md: the columns of shared parts, and those that the parts of papers register."""

from __future__ import annotations

import importlib
import pkgutil

from mmrl.core.columns import table

HEAD = """# Columns of a batch

`mmrl/core/columns.py` has the columns of shared parts. A part of one paper, of sequences or of imagination registers
its columns in its own module; they come last, by name. `python scripts/paper_index.py` writes this page, and a test
checks it.
`N` rows, `T` choices, `K` kept ids, `*` a number that every row has of its own (stored end to end).

"""


def render_page() -> str:
    """Render the page."""
    import_methods()
    return HEAD + table()


def import_methods() -> None:
    """Import every module that may register columns, those of papers and those of parts that only some runs have."""
    for package in ("mmrl.methods", "mmrl.objectives", "mmrl.data", "mmrl.learners"):
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            importlib.import_module(module.name)
