"""`mmrl list methods`: every method with its paper and the recipes that run it, by theme."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mmrl.commands.catalogue.rows import (
    Row,
    cite_within,
    describe_file,
    describe_paper,
    read_first_comment,
    shorten,
    to_rows,
    wrap,
)
from mmrl.commands.catalogue.runs import find_name, find_theme, find_users, group_themes, list_users
from mmrl.config.layers.files import Options, merge_choices, read_layers, read_paper
from mmrl.config.layers.settings import read_paper_setting
from mmrl.config.option_files import find_options

_USERS, _SHORTEST = 22, 10  # columns: of recipes, and of a paper at least
_NOTES = (
    "* has paper_setting: numbers of its paper, which `mmrl fit method=NAME setting=paper` takes.",
    "`mmrl fit method=NAME setting=SETTING` runs a method that no recipe runs; some are there for others to extend.",
    "`mmrl list methods NAME` shows one method in full, `mmrl list settings` where methods run.",
)


def format_methods(width: int) -> list[str]:
    """Lines of at most `width` columns: a heading for each theme, then a line for each method."""
    options = find_options()
    methods, users = options["method"], list_users(options, "method")
    first = max(map(len, methods)) + 1
    paper_width = max(_SHORTEST, width - first - _USERS - 6)

    def format_row(name: str, paper: str, runs: str) -> str:
        return f"  {name:{first}}  {paper:{paper_width}}  {runs}".rstrip()

    lines = [format_row("method", "paper", "recipes")]
    for theme, names in group_themes({name: find_theme(file) for name, file in methods.items()}):
        lines += ["", theme]
        for name in names:
            marked = f"{name}*" if read_paper_setting(name) else name
            lines.append(
                format_row(marked, cite_method(options, name, paper_width), join_users(users.get(name, ()), _USERS))
            )
    return [*lines, "", *wrap(_NOTES, width)]


def cite_method(options: Options, name: str, width: int) -> str:
    """The paper of a method, or the comment at the start of its file."""
    paper = read_paper({"method": name}, options)
    return (
        cite_within(paper, width)
        if "title" in paper
        else shorten(read_first_comment(options["method"][name].path), width)
    )


def join_users(names: Sequence[str], width: int) -> str:
    """As many names as fit into a cell, and how many more there are."""
    if not names:
        return "-"
    for count in range(len(names), 0, -1):
        more = f" +{len(names) - count}" if count < len(names) else ""
        text = ", ".join(names[:count]) + more
        if len(text) <= width:
            return text
    return shorten(names[0], width)


def describe_method(name: str) -> list[Row]:
    """Paper, its numbers, groups and the recipes of one method."""
    options = find_options()
    name = find_name(options, "method", name, "mmrl list methods")
    file, layers = options["method"][name], read_layers("method", name, options)
    return to_rows(
        {
            "method": name,
            "theme": find_theme(file),
            **describe_paper(read_paper({"method": name}, options), name),
            "extends": ", ".join(layer.name for layer in layers[:-1]),
            "groups": format_choices(merge_choices(layers)),
            "recipes": ", ".join(find_users(options, "method", name)),
            "file": describe_file(file.path),
        }
    )


def format_choices(choices: Mapping[str, str | None]) -> str:
    """Groups with their options, as arguments of a command line."""
    return " ".join(f"{group}={(option or 'null').rpartition('/')[2]}" for group, option in sorted(choices.items()))
