"""`mmrl list`: the options of a config group and the parts of a package, with one line about each."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mmrl.commands.catalogue.methods import describe_method, format_methods
from mmrl.commands.catalogue.recipes import describe_recipe, describe_start, format_recipes
from mmrl.commands.catalogue.rows import Row
from mmrl.commands.catalogue.runs import find_theme, group_themes
from mmrl.commands.catalogue.settings import describe_setting, format_settings
from mmrl.commands.catalogue.sources import (
    Source,
    find_environment,
    find_missing_packages,
    find_source,
    find_subclasses,
)
from mmrl.commands.catalogue.tasks import tabulate_tasks
from mmrl.config.layers.files import read_paper
from mmrl.config.option_files import CONF, OptionFile, find_options, find_rewards, groups, read_comment
from mmrl.config.renamed import find_new_name
from mmrl.core.errors import ConfigError

PARTS = {
    "annotator": ("mmrl.annotators", "mmrl.annotators.base.Annotator"),
    "term": ("mmrl.objectives", "mmrl.objectives.objective.Term"),
    "weighting": ("mmrl.objectives", "mmrl.objectives.weighting.Weighting"),
    "reward": ("mmrl.rewards", "mmrl.rewards.base.Reward"),
    "transform": ("mmrl.transforms", "mmrl.transforms.base.EpisodeTransform"),
    "row": ("mmrl.transforms.rows", "mmrl.transforms.rows.base.RowTransform"),
    "schedule": ("mmrl.schedules", "mmrl.schedules.base.Schedule"),
    "evaluator": ("mmrl.evaluation", "mmrl.evaluation.base.Evaluator"),
    "callback": ("mmrl.callbacks", "lightning.Callback"),
}
"""Parts that a recipe names by import path: the package that holds the shared ones, and their base class."""
METHODS = "mmrl.methods"
"""The package of the parts that one paper alone needs, whatever their kind."""
WIDTH, WIDEST = 100, 120
"""Columns of the output: of a pipe, and at most of a terminal."""

TABLES: dict[str, Callable[[int], list[str]]] = {
    "recipe": format_recipes,
    "method": format_methods,
    "setting": format_settings,
}
"""Groups that have a table of their own: its lines, given the columns of the output."""
DESCRIPTIONS: dict[str, Callable[[str], list[Row]]] = {
    "recipe": describe_recipe,
    "method": describe_method,
    "setting": describe_setting,
    "start": describe_start,
}
"""Groups whose options are shown in full by `mmrl list GROUP NAME`."""


def print_list(arguments: Sequence[str]) -> None:
    """Print all groups, the options of one group, or one recipe, method, setting or start."""
    width = min(Console().width, WIDEST) if Console().is_terminal else WIDTH
    console = Console(width=width, markup=False, emoji=False)
    name = find_group(arguments[0]) if arguments else None
    if len(arguments) > (2 if name in DESCRIPTIONS else 1):
        raise ConfigError(f"name one group, got {list(arguments)}; for example `mmrl list recipes`")
    if len(arguments) == 2:
        console.print(_tabulate(DESCRIPTIONS[str(name)](arguments[1])), highlight=False)
    elif name in TABLES:
        console.print(Text("\n".join(TABLES[name](console.width))), highlight=False)
    elif name == "task":
        console.print(tabulate_tasks(entries(name)), highlight=False)
    else:
        console.print(_tabulate(entries(name) if name else overview()), highlight=False)


def _tabulate(rows: Sequence[Row]) -> Table | Text:
    """Two columns; where the names need half of the width, each description below its name."""
    if max(len(name) for name, _ in rows) > WIDTH // 2:
        return Text(
            "\n".join(f"{name}\n{textwrap.indent(textwrap.fill(text, WIDTH - 4), '    ')}" for name, text in rows)
        )
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))  # brackets are no markup
    return table


def overview() -> list[Row]:
    """Every group with the number of its options and their names; of methods the number in each theme."""
    options = find_options()
    names = {group: ", ".join(sorted(files)) for group, files in options.items()}
    themes = group_themes({name: find_theme(file) for name, file in options["method"].items()})
    names["method"] = ", ".join(f"{theme} {len(methods)}" for theme, methods in themes)
    counts = {group: (len(options[group]), text) for group, text in names.items()}
    for name in PARTS:
        named = sorted(find_rewards()) if name == "reward" else []
        parts = [*named, *(part.node.name for part in classes(name))]
        counts[name] = (len(parts), ", ".join(parts))
    return sorted((plural(name), f"{count}: {text}") for name, (count, text) in counts.items())


def find_group(argument: str) -> str:
    """The group that is meant by its name in singular or plural."""
    forms = {form: name for name in (*groups(), *PARTS) for form in (name, plural(name))}
    if argument not in forms:
        if new := find_new_name("commands", "list", argument):
            raise ConfigError(f"{argument} was renamed to {new}")
        near = difflib.get_close_matches(argument, forms, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        names = ", ".join(sorted(map(plural, (*groups(), *PARTS))))
        raise ConfigError(f"no group {argument!r}.{hint} Groups are {names}")
    return forms[argument]


def entries(argument: str) -> list[Row]:
    """(name, description) of every option of a group, then (import path, description) of every part of the name."""
    name = find_group(argument)
    files = find_rewards() if name == "reward" else find_options().get(name, {})
    options = [(option, describe_option(name, files[option])) for option in sorted(files)]
    parts = [(part.path, part.summary) for part in classes(name)] if name in PARTS else []
    return options + parts


def describe_option(group: str, file: OptionFile) -> str:
    """The paper of a recipe or a method, else the first comment or the docstring of the class; with what it needs."""
    option, text = file.path.stem, file.path.read_text()
    node: dict[str, Any] = yaml.safe_load(text) or {}
    origin = f" (yours, {file.origin})" if file.origin else ""
    paper = read_paper({group: option}) if group in ("recipe", "method") else {}
    if "title" in paper:
        return str(paper["title"]) + origin
    source = find_source(node["_target_"]) if "_target_" in node else None
    description = read_comment(text) or (source.summary if source else "")
    missing = find_missing_packages(source.module) if source and group in ("sim", "task") else []
    packages = f" (needs {', '.join(missing)}: not installed, see `mmrl doctor`)" if missing else ""
    return description + packages + (_describe_environment(source) if source and group == "sim" else "") + origin


def _describe_environment(source: Source) -> str:
    """What makes the virtual environment of a simulator, where it is missing here."""
    environment = find_environment(source)
    if environment is None or any((folder / environment[0]).exists() for folder in (Path.cwd(), CONF.parent)):
        return ""
    return f" (needs {environment[0]}: not there, `make {environment[1]}` makes it)"


def classes(name: str) -> list[Source]:
    """The concrete parts of one kind, those of single papers included, by import path."""
    package, base = PARTS[name]
    return find_subclasses((package, METHODS), base)


def plural(name: str) -> str:
    """policy -> policies, term -> terms; data and phases stay."""
    if name in ("data", "phases"):
        return name
    return name[:-1] + "ies" if name.endswith("y") else ("curricula" if name == "curriculum" else name + "s")
