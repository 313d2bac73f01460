"""Render the table of docs/recipes.md: the numbers of each method's paper, and where they stand in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmrl.config.layers.files import flatten
from mmrl.config.layers.settings import read_paper_setting
from mmrl.config.option_files import find_options
from mmrl.experiments.papers import join_cells

START = "<!-- numbers of the papers: written by scripts/paper_index.py -->"
END = "<!-- end of the numbers -->"
COLUMNS = {
    "lr": "model.optimizer.lr",
    "prompts": "data.num_prompts",
    "group": "data.group_size",
    "minibatches": "data.num_minibatches",
    "temperature": "data.sampling.temperature",
    "tokens": "data.sampling.max_tokens",
}
"""Columns of the table, and the keys of a run that they show; all other keys are in the column `other`."""
ABSENT = "no numbers in the method's file"


def read_numbers() -> dict[str, dict[str, Any]]:
    """Read the block `paper_setting:` of every method of mmrl, by name; empty for a method without one."""
    methods = find_options()["method"]
    return {name: read_paper_setting(name) for name in sorted(methods) if not methods[name].origin}


def render_numbers(blocks: Mapping[str, Mapping[str, Any]]) -> str:
    """Render one row for each method: its paper's numbers, and where they stand in the paper.

    Args:
        blocks: the block `paper_setting:` of each method, by name.
    """
    heads = ["method", *COLUMNS, "other", "where it stands"]
    return "\n".join(
        [join_cells(heads), "|" + "---|" * len(heads), *(_format_row(name, block) for name, block in blocks.items())]
    )


def replace_numbers(page: Path) -> str:
    """Return the text of a page, with the present table between its two markers.

    Raises:
        ValueError: the page lacks a marker.
    """
    before, start, rest = page.read_text(encoding="utf-8").partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise ValueError(f"{page}: the lines {START!r} and {END!r} are missing, between which the table stands")
    return f"{before}{START}\n{render_numbers(read_numbers())}\n{END}{after}"


def _format_row(name: str, block: Mapping[str, Any]) -> str:
    if not block:
        return join_cells([f"`{name}`", *["-"] * (len(COLUMNS) + 1), ABSENT])
    numbers = {key: value for key, value in flatten(block) if key != "place"}
    cells = [_format_value(numbers.pop(key)) if key in numbers else "-" for key in COLUMNS.values()]
    other = ", ".join(f"`{_shorten(key)}={_format_value(value)}`" for key, value in numbers.items())
    return join_cells([f"`{name}`", *cells, other or "-", str(block["place"])])


def _shorten(key: str) -> str:
    """A key as a command line has it, where `optimizer.` stands for `model.optimizer.`."""
    return key.removeprefix("model.").removeprefix("data.")


def _format_value(value: Any) -> str:
    """A number without an exponent's zeros: 1e-6."""
    if isinstance(value, float):
        return f"{value:.12g}".replace("e-0", "e-").replace("e+0", "e+")
    return str(value)
