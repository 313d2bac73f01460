"""Render docs/papers.md: each recipe with its paper, how close it is, how to run it, its result; parts with sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml

from mmrl.config.compose import CONF
from mmrl.experiments.comparison import Comparison, read_comparison
from mmrl.experiments.results import FOLDER, format_result, read_result
from mmrl.experiments.sources import SourcedPart, read_sources

HEAD = """# Papers

Each recipe with its paper, what differs from it, and its result. `python scripts/paper_index.py` writes this page;
a test checks that it is current. [Parts](#parts-and-their-sources) at the end: tasks, rewards, objectives and other
classes and functions, with what each follows.

`python scripts/reproduce.py NAME` runs the experiment of a recipe: method and baseline at equal budget over several
seeds, on held-out problems. A result is the effect with its Student 95 % interval: of the paired difference to the
baseline or, without a baseline, of the gain over the start. The verdict follows from the interval. [results/](results)
holds every seed. Figures show the mean over the seeds, and the lowest to the highest seed as a band. "smoke": a recipe
without an experiment; a test runs some iterations of it, which says that it runs and nothing about what it learns.
"compared": a table has it beside other recipes at equal budget.

| recipe | paper | status | result |
|---|---|---|---|
"""

PARTS = """## Parts and their sources

What the classes and functions of the packages follow, from their docstrings.

"""


def render_page(conf: Path = CONF, results: Path = FOLDER) -> str:
    """Render the text of docs/papers.md."""
    recipes = {
        path.stem: yaml.safe_load(path.read_text())["paper"] for path in sorted((conf / "recipe").glob("*.yaml"))
    }
    compared = _find_compared(conf)
    rows = [_format_row(name, paper, _summarize(name, conf, results, compared)) for name, paper in recipes.items()]
    sections = ["\n".join(_format_section(name, paper, conf, results, compared)) for name, paper in recipes.items()]
    parts = read_sources(conf.parent, ("tasks", "sims", "mmrl"))
    return HEAD + "\n".join(rows) + "\n\n" + "\n\n".join(sections) + "\n\n" + PARTS + "\n".join(_format_parts(parts))


def _find_compared(conf: Path) -> dict[str, list[Comparison]]:
    """Find the comparisons that a recipe is in, by the recipe's name."""
    compared: dict[str, list[Comparison]] = {}
    for path in sorted((conf / "comparison").glob("*.yaml")):
        comparison = read_comparison(path.stem, path.parent)
        recipes = {
            word.partition("=")[2]
            for words in comparison.methods.values()
            for word in words
            if word.startswith("recipe=")
        }
        for recipe in recipes:
            compared.setdefault(recipe, []).append(comparison)
    return compared


def _format_parts(parts: Sequence[SourcedPart]) -> Iterator[str]:
    """Format one table for each folder."""
    for folder, own in groupby(parts, key=lambda part: part.file.rpartition("/")[0]):
        yield from (f"### {folder}", "", "| part | does | source |", "|---|---|---|")
        yield from (_join_cells((f"`{part.name}`", part.summary, part.source)) for part in own)
        yield ""


def _format_row(name: str, paper: dict[str, Any], result: str) -> str:
    return _join_cells((f"[`{name}`](#{name})", _cite(paper), paper["status"], result))


def _join_cells(cells: Sequence[str]) -> str:
    """Return a row of a Markdown table."""
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"


def _format_section(
    name: str, paper: dict[str, Any], conf: Path, results: Path, compared: Mapping[str, Sequence[Comparison]]
) -> Iterator[str]:
    yield from (f"## {name}", "", f"{_cite(paper)}; {paper['source']}", "")
    yield from (
        f"- command: `mmrl fit recipe={name}`",
        f"- status: {paper['status']}",
        f"- differs: {paper['differs']}",
    )
    result, file = read_result(name, results), conf / "experiment" / f"{name}.yaml"
    if result is not None:
        explanation = yaml.safe_load(file.read_text()).get("explanation")
        yield f"- result: {format_result(result)}{f'; {explanation}' if explanation else ''}"
    elif file.exists():
        yield f"- result: not run, `python scripts/reproduce.py {name}`"
    for comparison in compared.get(name, ()):
        yield f"- compared: [{comparison.title}](comparisons/{comparison.name}.md)"
    if result is not None and (results / f"{name}.png").exists():
        yield from ("", f"![{name}: {result['metric']} over the iterations](results/{name}.png)")


def _summarize(name: str, conf: Path, results: Path, compared: Mapping[str, Sequence[Comparison]]) -> str:
    result = read_result(name, results)
    if result is not None:
        return format_result(result)
    if (conf / "experiment" / f"{name}.yaml").exists():
        return "not run"
    pages = [f"[compared](comparisons/{comparison.name}.md)" for comparison in compared.get(name, ())]
    return ", ".join(["smoke", *pages])


def _cite(paper: dict[str, Any]) -> str:
    year = f" ({paper['year']})" if paper.get("year") else ""
    return f"{paper['title']}{year}"
