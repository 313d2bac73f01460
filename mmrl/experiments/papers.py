"""Render docs/papers.md: each recipe with its paper, its differences from the paper, and its result."""

from __future__ import annotations

from pathlib import Path

import yaml

from mmrl.config.compose import CONF
from mmrl.experiments.results import FOLDER, format_result, read_result

HEADERS = ("recipe", "paper", "status", "what differs", "result")


def render_page(conf: Path = CONF, results: Path = FOLDER) -> str:
    """Render the text of docs/papers.md."""
    rows = [_format_row(path, conf, results) for path in sorted((conf / "recipe").glob("*.yaml"))]
    lines = [f"| {' | '.join(HEADERS)} |", "|" + "---|" * len(HEADERS), *rows]
    return (
        "# Papers\n\n"
        "Written by `python scripts/paper_index.py`; a test checks that it is current.\n"
        "`python scripts/reproduce.py NAME` runs the experiment of a recipe: method and baseline at equal budget over\n"
        "seeds. A result is the effect with its Student 95 % interval: of the paired difference to the baseline or,\n"
        "without a baseline, of the gain over the start. `docs/results/` holds\n"
        "every seed. `mmrl fit recipe=NAME` trains one run.\n\n" + "\n".join(lines) + "\n"
    )


def _format_row(path: Path, conf: Path, results: Path) -> str:
    paper = yaml.safe_load(path.read_text())["paper"]
    year = f" ({paper['year']})" if paper.get("year") else ""
    title = f"{paper['title']}{year}; {paper['source']}"
    cells = (
        f"`{path.stem}`",
        title,
        paper["status"],
        paper["differs"],
    )
    return f"| {' | '.join(_plain(cell) for cell in (*cells, _format_cell(path.stem, conf, results)))} |"


def _format_cell(recipe: str, conf: Path, results: Path) -> str:
    file = conf / "experiment" / f"{recipe}.yaml"
    result = read_result(recipe, results)
    if result is None:
        return f"not run: `python scripts/reproduce.py {recipe}`" if file.exists() else ""
    figure = f" ([figure](results/{recipe}.png))" if (results / f"{recipe}.png").exists() else ""
    explanation = yaml.safe_load(file.read_text()).get("explanation")
    return f"{format_result(result)}{figure}{f'; {explanation}' if explanation else ''}"


def _plain(cell: str) -> str:
    return " ".join(cell.split()).replace("|", "\\|")
