"""`mmrl list recipes`: every recipe with its paper, its run time and the verdict of its stored result."""

from __future__ import annotations

import difflib
import functools
import re
from pathlib import Path
from statistics import mean
from typing import Any

import yaml

from mmrl.commands.catalogue.sources import find_source
from mmrl.config.option_files import CONF, find_option, find_options, groups, read_comment
from mmrl.errors import ConfigError
from mmrl.experiments.results import ABSENT, FOLDER, describe_result, read_result

KINDS = {
    "text": "text: language models",
    "VLM": "VLM: vision-language models",
    "VLA": "VLA: vision-language-action models",
    "control": "control: policies on state vectors or pixels, without language",
    "preference": "preference: reward models and direct preference optimisation",
    "offline": "offline: demonstrations and logged episodes",
}
"""Headings, in the order of the table."""
OWN = "yours: recipes of conf/ in the working directory, of --config-dir and of other packages"
_MINUTES, _RESULT = 4, 23  # columns
_PREFERENCE = "mmrl.objectives.preference."
_OFFLINE = "mmrl.rollouts.offline."
_POLICIES = {"mmrl.policies.text.vision.": "VLM", "mmrl.policies.text.": "text", "mmrl.policies.vla.": "VLA"}


def format_recipes(width: int) -> list[str]:
    """Lines of at most `width` columns: a heading for each kind, then a line for each recipe."""
    names, starts = groups()["recipe"], start_recipes()
    first = max(map(len, names)) + 1
    paper_width = width - first - _MINUTES - _RESULT - 8

    def format_row(name: str, paper: str, minutes: str, result: str) -> str:
        cut = paper if len(paper) <= paper_width else f"{paper[: paper_width - 3]}..."
        return f"  {name:{first}}  {cut:{paper_width}}  {minutes:>{_MINUTES}}  {result}".rstrip()

    unmeasured = "not measured" if FOLDER.is_dir() else ABSENT
    lines = [format_row("recipe", "paper", "min", "result")]
    own = {name: file.origin for name, file in find_options()["recipe"].items() if file.origin}
    if own:
        lines += ["", OWN]
        lines += [format_row(name, describe_own(name), "-", origin) for name, origin in own.items()]
    kinds = {name: find_kind(name) for name in names if name not in own}
    for kind, heading in KINDS.items():
        lines += ["", heading]
        for name in (name for name, found in kinds.items() if found == kind):
            result = read_result(name)
            marked = f"{name}*" if name in starts else name
            verdict = "-" if result is None else str(result["verdict"])
            lines.append(format_row(marked, cite(_read("recipe", name)["paper"]), format_minutes(result), verdict))
    return [
        *lines,
        "",
        f"* trains the start of other recipes; min: minutes a seed on 2 cores; -: {unmeasured}",
        "`mmrl list recipes NAME` shows one recipe in full",
    ]


def cite(paper: dict[str, Any]) -> str:
    """arXiv id, year and title; a recipe without a paper has its title alone."""
    arxiv = re.search(r"arXiv:(\d{4}\.\d{4,5})", str(paper.get("source", "")))
    year = f"{paper['year']} " if paper.get("year") else ""
    return f"{arxiv[1] + ' ' if arxiv else year}{paper['title']}"


def describe_own(name: str) -> str:
    """The paper of a user's recipe, or the comment at the start of its file."""
    paper = _read("recipe", name).get("paper")
    return cite(paper) if paper else read_comment(find_option("recipe", name).path.read_text())


def describe_recipe(name: str) -> list[tuple[str, str]]:
    """Paper, differences from it, groups, run time and result of one recipe."""
    if name not in groups()["recipe"]:
        near = difflib.get_close_matches(name, groups()["recipe"], n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"no recipe {name!r}.{hint} Name one group, or one recipe: `mmrl list recipes` shows all")
    paper, result = _read("recipe", name).get("paper") or {}, read_result(name)
    used = sorted(recipe for recipe in groups()["recipe"] if name in _stages(recipe))
    rows = {
        "recipe": name,
        "kind": KINDS[find_kind(name)],
        "file": file.path if (file := find_option("recipe", name)).origin else None,
        "paper": paper.get("title", "") + (f" ({paper['year']})" if paper.get("year") else ""),
        "source": paper.get("source"),
        "status": paper.get("status"),
        "differs": paper.get("differs"),
        "groups": " ".join(f"{group}={option}" for group, option in sorted(resolve_groups(name).items()) if option),
        "start of": ", ".join(used),
        "minutes": f"{format_minutes(result)} a seed on 2 cores" if result is not None else None,
        "result": describe_result(name),
    }
    return [(key, str(value)) for key, value in rows.items() if value]


def format_minutes(result: dict[str, Any] | None) -> str:
    """Mean minutes of a seed on 2 cores; - where they are not measured."""
    seconds = [row["seconds"] for row in (result or {}).get("seeds", ()) if row.get("seconds") is not None]
    return f"{mean(seconds) / 60:.1f}" if seconds else "-"


def find_kind(recipe: str) -> str:
    """A key of `KINDS`, from the objective, the rollout and the policy that the recipe chooses."""
    chosen = resolve_groups(recipe)
    objective = _read("objective", chosen["objective"]) if chosen.get("objective") else {}
    terms = (objective.get("terms") or {}).values()
    if any(str(term.get("_target_", "")).startswith(_PREFERENCE) for term in terms):
        return "preference"
    if str(_read("rollout", chosen["rollout"]).get("_target_")).startswith(_OFFLINE):
        return "offline"
    policy = find_source(_find_target("policy", str(chosen["policy"])))
    paths = [source.path for source in policy.family()] if policy is not None else []
    kinds = (kind for path in paths for prefix, kind in _POLICIES.items() if path.startswith(prefix))
    return next(kinds, "control")  # the policy of one paper is of the kind of the class that it extends


def resolve_groups(recipe: str) -> dict[str, str | None]:
    """The option of each group, as Hydra's defaults lists choose them; composing all recipes takes too long."""
    entries = _read("", "config")["defaults"]
    chosen = {group: option for entry in entries if isinstance(entry, dict) for group, option in entry.items()}
    return {**chosen, **_overrides(recipe), "recipe": recipe}


def _overrides(recipe: str) -> dict[str, str | None]:
    """Overrides of a recipe's defaults list; its own come after those of the recipes that it extends."""
    entries = _read("recipe", recipe).get("defaults") or []
    chosen: dict[str, str | None] = {}
    for entry in entries:
        if isinstance(entry, str):
            chosen |= _overrides(entry)
    for entry in entries:
        if isinstance(entry, dict):
            chosen |= {key.removeprefix("override /"): value for key, value in entry.items()}
    return chosen


def start_recipes() -> set[str]:
    """Recipes that train the start of another recipe: those that a warm-start stage names."""
    return {name for recipe in groups()["recipe"] for name in _stages(recipe)}


def _stages(recipe: str) -> set[str]:
    warm_start = ((_read("recipe", recipe).get("trainer") or {}).get("callbacks") or {}).get("warm_start") or {}
    stages = (warm_start.get("stages") or {}).values()
    return {str(word).removeprefix("recipe=") for stage in stages for word in stage or () if "recipe=" in str(word)}


def _find_target(group: str, option: str) -> str:
    """The class of an option, its own or that of the option that it extends."""
    node = _read(group, option)
    bases = [entry for entry in node.get("defaults") or () if isinstance(entry, str) and entry != "_self_"]
    return str(node.get("_target_") or next((_find_target(group, base) for base in bases), ""))


def _read(group: str, option: str) -> dict[str, Any]:
    return _read_file(find_option(group, option).path if group else CONF / f"{option}.yaml")


@functools.cache
def _read_file(file: Path) -> dict[str, Any]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(file.read_bytes(), loader) or {}
