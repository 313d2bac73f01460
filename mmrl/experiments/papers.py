"""Render docs/papers/: each recipe with its paper, how close it is, how to run it, its result; parts with sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml

from mmrl.config.compose import CONF
from mmrl.config.layers.files import find_part, read_inherited_differences, read_paper, read_run
from mmrl.config.option_files import find_option, find_options
from mmrl.experiments.acts import describe_acts, read_records, summarize_acts
from mmrl.experiments.comparison import Comparison, read_comparison
from mmrl.experiments.results import FOLDER, format_result, format_smallest, read_result, result_file
from mmrl.experiments.sources import SourcedPart, read_sources

INDEX = """# Papers

Each recipe with its paper, what differs from it, and its result. The pages are named after the folders of
`conf/method/`; `python scripts/paper_index.py` writes them, and a test checks that they are current.
[Parts and their sources](parts.md): tasks, rewards, objectives and other classes and functions, with what each follows.
[The numbers of the papers](../recipes.md#the-numbers-of-the-papers) are in one table.

`python scripts/reproduce.py NAME` runs the experiment of a recipe: method and baseline at equal budget over several
seeds, on held-out problems. A result is the effect with its Student 95 % interval: of the paired difference to the
baseline or, without a baseline, of the gain over the start. The verdict follows from the interval.
"Finds" is the smallest difference that an experiment with as many seeds, as spread as these, finds four times in five
(Student's test at 5 %, two-sided). Where that is more than 0.1 of a metric between 0 and 1, an interval around zero
says "undecided" in place of "no effect at this scale"; "at its ceiling" or "floor" has both sides end above 0.95 or
below 0.05, where there is no room for a difference.
[results/](../results) holds every seed. Figures show the mean over the seeds, and the lowest to the highest seed as a
band. "none": a recipe without an experiment. "compared": a table has it beside other recipes at equal budget.

"acts": whether a run of the recipe at its own defaults, from its own start, showed what the paper is named for: rows to
learn from in every iteration, a gradient of every term, and the numbers that the method's header names, such as hints
given, old rows replayed, a judge asked. It says that the mechanism works and nothing about what is learned. "not run":
the run has not been made yet; `python -m tests.acts NAME` makes it, and
[the record](../results/acts.json) has the numbers.

## How close a recipe is to its paper
| status | the recipe |
|---|---|
{status}

"differs" lists what the paper has otherwise. A method that extends another one takes over what differs there too,
unless it changes that part; the page lists it under the name of the extended method.

## Recipes by theme
| theme | recipes |
|---|---|
"""
STATUS = {
    "exact": "implements the paper's equations; what differs is a term that is left out, a weighting, sizes or data",
    "variant": "is a variant of the paper's method: an equation or a step of the procedure is another one",
    "inspired": "is inspired by the paper: it takes an idea, and its equations and its procedure are its own",
}
"""What each status of a header says about its recipe, as the end of a sentence."""
TABLE = """| recipe | paper | status | acts | result | finds |
|---|---|---|---|---|---:|
"""
PARTS = """# Parts and their sources

What the classes and functions of the packages follow, from their docstrings. [Papers](index.md) has the recipes.

"""


@dataclass(frozen=True)
class Sources:
    """Where the pages take results from: experiments, stored results, comparisons and records of acts by recipe."""

    conf: Path = CONF
    results: Path = FOLDER
    compared: Mapping[str, Sequence[Comparison]] = field(default_factory=dict)
    records: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def render_pages() -> dict[str, str]:
    """Render the pages of docs/papers/: their text by file name."""
    themes = read_themes()
    sources = Sources(compared=find_compared(CONF), records=read_records())
    parts = read_sources(CONF.parent, ("tasks", "sims", "mmrl"))
    return {
        "index.md": INDEX.format(status=_format_status())
        + "\n".join(_format_theme(theme, papers) for theme, papers in themes.items())
        + "\n",
        **{f"{theme}.md": render_theme(theme, papers, sources) for theme, papers in themes.items()},
        "parts.md": PARTS + "\n".join(_format_parts(parts)),
    }


def read_themes() -> dict[str, dict[str, dict[str, Any]]]:
    """Read the header `paper:` of every recipe of mmrl, by theme (the folder of its method) and name.

    Where a recipe's own file says what differs, `method_differs` is what its method says; `inherited` is what differs
    in each method that its method extends.
    """
    themes: dict[str, dict[str, dict[str, Any]]] = {}
    for name, file in sorted(find_options()["recipe"].items()):
        if not file.origin:
            choices = {"recipe": name}
            paper, differs = read_paper(choices), read_differences(choices)
            if "recipe" in differs and "method" in differs:
                paper["method_differs"] = differs["method"]
            paper["inherited"] = read_inherited_differences(find_part(read_run(choices), "method"))
            themes.setdefault(_find_theme(name), {})[name] = paper
    return dict(sorted(themes.items()))


def render_theme(theme: str, papers: Mapping[str, dict[str, Any]], sources: Sources) -> str:
    """Render the page of one theme: a table of its recipes, and a section for each.

    Args:
        theme: name of a folder of conf/method.
        papers: header of each recipe, by its name.
        sources: where results come from.
    """
    rows = [_format_row(name, paper, sources) for name, paper in papers.items()]
    sections = ["\n".join(_format_section(name, paper, sources)) for name, paper in papers.items()]
    head = (
        f"# {theme.capitalize()}\n\nRecipes of the methods in `conf/method/{theme}/`; [Papers](index.md) explains.\n\n"
    )
    return head + TABLE + "\n".join(rows) + "\n\n" + "\n\n".join(sections) + "\n"


def find_compared(conf: Path) -> dict[str, list[Comparison]]:
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


def read_differences(choices: Mapping[str, str | None]) -> dict[str, str]:
    """What differs from the paper, by group: what the run's method says, and what its own file says; not "none"."""
    headers = [(layer.group, layer.keys.get("paper") or {}) for layer in read_run(choices)]
    texts = {group: str(header["differs"]) for group, header in headers if header.get("differs") is not None}
    return {group: text for group, text in texts.items() if text != "none"}


def find_page(recipe: str) -> str:
    """The page and anchor of a recipe, below docs/papers."""
    return f"{_find_theme(recipe)}.md#{recipe}"


def _find_theme(recipe: str) -> str:
    """The folder of a recipe's method."""
    return find_option("method", find_part(read_run({"recipe": recipe}), "method")).name.partition("/")[0]


def join_cells(cells: Sequence[str]) -> str:
    """Return a row of a Markdown table."""
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"


def _format_status() -> str:
    return "\n".join(join_cells((status, text)) for status, text in STATUS.items())


def _format_theme(theme: str, papers: Mapping[str, Any]) -> str:
    return join_cells((f"[{theme}]({theme}.md)", ", ".join(f"[`{name}`]({theme}.md#{name})" for name in papers)))


def _format_parts(parts: Sequence[SourcedPart]) -> Iterator[str]:
    """Format one table for each folder."""
    for folder, members in groupby(parts, key=lambda part: part.file.rpartition("/")[0]):
        yield from (f"## {folder}", "", "| part | does | source |", "|---|---|---|")
        yield from (
            join_cells((f"`{part.name}`", _escape_tags(part.summary), _escape_tags(part.source))) for part in members
        )
        yield ""


def _escape_tags(text: str) -> str:
    """Escape `<` outside of code, where a browser would read a tag."""
    pieces = text.split("`")
    return "`".join(piece if index % 2 else piece.replace("<", "&lt;") for index, piece in enumerate(pieces))


def _format_row(name: str, paper: dict[str, Any], sources: Sources) -> str:
    acts, result = summarize_acts(sources.records.get(name)), read_result(name, sources.results)
    finds = format_smallest(result) if result is not None else ""
    return join_cells((f"[`{name}`](#{name})", _cite(paper), paper["status"], acts, _summarize(name, sources), finds))


def _format_section(name: str, paper: dict[str, Any], sources: Sources) -> Iterator[str]:
    yield from (f"## {name}", "", f"{_cite(paper)}; {paper['source']}", "")
    yield from (
        f"- command: `mmrl fit recipe={name}`",
        f"- status: {paper['status']}",
        f"- differs: {paper['differs']}",
    )
    if paper.get("method_differs"):
        yield f"- its method differs: {paper['method_differs']}"
    for base, text in paper.get("inherited", {}).items():
        yield f"- `{base}`, which it extends, differs: {text}"
    yield f"- acts: {describe_acts(name, sources.records.get(name))}"
    result, file = read_result(name, sources.results), _find_experiment(name, sources)
    if result is not None and file is not None:
        explanation = yaml.safe_load(file.read_text()).get("explanation")
        yield f"- result: {format_result(result)}{f'; {explanation}' if explanation else ''}"
    elif file is not None:
        yield f"- result: not run, `python scripts/reproduce.py {name}`"
    for comparison in sources.compared.get(name, ()):
        yield f"- compared: [{comparison.title}](../comparisons/{comparison.name}.md)"
    picture = result_file("recipe", name, sources.results).with_suffix(".png")
    if result is not None and picture.exists():
        place = picture.relative_to(sources.results).as_posix()
        yield from ("", f"![{name}: {result['metric']} over the iterations](../results/{place})")


def _summarize(name: str, sources: Sources) -> str:
    result = read_result(name, sources.results)
    if result is not None:
        return format_result(result)
    if _find_experiment(name, sources) is not None:
        return "not run"
    pages = [f"[compared](../comparisons/{comparison.name}.md)" for comparison in sources.compared.get(name, ())]
    return ", ".join(pages) or "none"


def _find_experiment(name: str, sources: Sources) -> Path | None:
    return next((sources.conf / "experiment").rglob(f"{name}.yaml"), None)


def _cite(paper: dict[str, Any]) -> str:
    year = f" ({paper['year']})" if paper.get("year") else ""
    return f"{paper['title']}{year}"
