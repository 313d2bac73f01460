"""`mmrl list recipes`: every recipe with its paper, its run time and the verdict of its stored result, by theme."""

from __future__ import annotations

from statistics import mean
from typing import Any

from mmrl.commands.catalogue.rows import (
    Row,
    cite,
    cite_within,
    describe_file,
    describe_paper,
    read_first_comment,
    shorten,
    to_rows,
    wrap,
)
from mmrl.commands.catalogue.runs import OWN, RunOption, find_name, find_theme, find_users, group_themes, read_runs
from mmrl.config.layers.files import Options, default_choices, merge_choices, read_paper, read_run
from mmrl.config.option_files import find_options
from mmrl.experiments.effect import read_verdict
from mmrl.experiments.results import ABSENT, FOLDER, describe_result, read_result

_MINUTES, _RESULT, _SHORTEST = 4, 9, 10  # columns: of the minutes, of the result, and of a paper at least
_SCALE = " at this scale"
"""The end of a verdict, which the line below the table says once."""


def format_recipes(width: int) -> list[str]:
    """Lines of at most `width` columns: a heading for each theme, then a line for each recipe."""
    options = find_options()
    runs = read_runs(options, "recipe")
    # widths of the columns; the paper has what the others leave
    first = max(map(len, runs))
    result_width = max(_RESULT, *(len(file.origin) for file in options["recipe"].values()))
    paper_width = max(_SHORTEST, width - first - _MINUTES - result_width - 8)

    def format_row(name: str, paper: str, minutes: str, result: str) -> str:
        return f"  {name:{first}}  {paper:{paper_width}}  {minutes:>{_MINUTES}}  {result}".rstrip()

    # a heading for each theme, then its recipes
    lines = [format_row("recipe", "paper", "min", "result")]
    for theme, names in group_themes({name: find_recipe_theme(options, run) for name, run in runs.items()}):
        lines += ["", theme]
        for name in names:
            if theme == OWN:
                text = shorten(describe_own(options, name), paper_width)
                lines.append(format_row(name, text, "-", options["recipe"][name].origin))
                continue
            paper, result = read_paper({"recipe": name}, options), read_result(name)
            verdict = "-" if result is None else read_verdict(result).removesuffix(_SCALE)
            lines.append(format_row(name, cite_within(paper, paper_width), format_minutes(result), verdict))
    unmeasured = "not measured" if FOLDER.is_dir() else ABSENT
    notes = (
        "A recipe is a method in a setting; a theme is a folder of conf/method.",
        f"min: minutes a seed on 2 cores; no effect:{_SCALE}; undecided: 0.1 would have been missed; -: {unmeasured}.",
        "`mmrl list recipes NAME` shows one recipe in full, `mmrl list methods` what the papers say.",
    )
    return [*lines, "", *wrap(notes, width)]


def find_recipe_theme(options: Options, run: RunOption) -> str:
    """The theme of a recipe's method; `OWN` for a recipe that is not mmrl's."""
    return OWN if options["recipe"][run.name].origin else find_theme(options["method"][run.method])


def describe_own(options: Options, name: str) -> str:
    """The paper that a user's recipe names itself, or the comment at the start of its file, or its method's paper."""
    header = read_run({"recipe": name}, options)[-1].keys.get("paper") or {}
    comment = read_first_comment(options["recipe"][name].path)
    paper = read_paper({"recipe": name}, options)
    return cite(paper) if "title" in paper and ("title" in header or not comment) else comment


def describe_recipe(name: str) -> list[Row]:
    """Method, setting, paper, groups, run time and result of one recipe."""
    options = find_options()
    name = find_name(options, "recipe", name, "mmrl list recipes")
    run = RunOption("recipe", name, read_run({"recipe": name}, options))
    result = read_result(name)
    return to_rows(
        {
            **describe_run(options, run),
            "minutes": f"{format_minutes(result)} a seed on 2 cores" if result is not None else None,
            "result": describe_result(name),
            "file": describe_file(options["recipe"][name].path),
        }
    )


def describe_start(name: str) -> list[Row]:
    """Method, setting and groups of one start, and the runs that begin with it."""
    options = find_options()
    name = find_name(options, "start", name, "mmrl list starts")
    file = options["start"][name].path
    run = RunOption("start", name, read_run({"start": name}, options))
    rows = {**describe_run(options, run), "file": describe_file(file)}
    return to_rows({"start": rows.pop("start"), "does": read_first_comment(file), **rows})


def describe_run(options: Options, run: RunOption) -> dict[str, Any]:
    """What a recipe and a start have in common: a method, a setting, what differs from its paper, and the groups."""
    method, setting = options["method"].get(run.method), options["setting"].get(run.setting)
    groups = sorted(resolve_groups(run).items())
    return {
        run.group: run.name,
        "method": f"{run.method} (theme: {find_theme(method)})" if method else None,
        "setting": f"{run.setting}: {read_first_comment(setting.path)}" if setting else None,
        **(describe_paper(read_paper({"recipe": run.name}, options), run.method) if run.group == "recipe" else {}),
        "begins with": "; ".join(f"{stage}: {' '.join(words)}" for stage, words in run.stages.items()),
        "start of": ", ".join(find_users(options, run.group, run.name)),
        "groups": " ".join(f"{group}={option}" for group, option in groups if option),
    }


def resolve_groups(run: RunOption) -> dict[str, str | None]:
    """The option of each group, as Hydra's defaults lists choose them; composing all recipes takes too long."""
    default = default_choices() if run.group == "recipe" else {**default_choices(), "recipe": None}
    choices = {**default, **merge_choices(run.layers), run.group: run.name}
    return {group: option and option.rpartition("/")[2] for group, option in choices.items()}


def format_minutes(result: dict[str, Any] | None) -> str:
    """Mean minutes of a seed on 2 cores; - where they are not measured."""
    seconds = [row["seconds"] for row in (result or {}).get("seeds", ()) if row.get("seconds") is not None]
    return f"{mean(seconds) / 60:.1f}" if seconds else "-"
