"""What there is to choose from, with one line of meaning each."""

from __future__ import annotations

import difflib
import importlib
import inspect
import pkgutil
from collections.abc import Sequence
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mmrl.config.compose import CONF, groups
from mmrl.config.renamed import find_new_name
from mmrl.config.wiring import load
from mmrl.errors import ConfigError
from mmrl.experiments.stored import proof_of, told

PARTS = {
    "annotator": ("mmrl.annotators", "mmrl.annotators.base.Annotator"),
    "term": ("mmrl.objectives", "mmrl.objectives.objective.Term"),
    "weighting": ("mmrl.objectives", "mmrl.objectives.weighting.Weighting"),
    "reward": ("mmrl.rewards", "mmrl.rewards.base.Reward"),
    "transform": ("mmrl.transforms", "mmrl.transforms.base.EpisodeTransform"),
    "evaluator": ("mmrl.evaluation", "mmrl.evaluation.base.Evaluator"),
    "callback": ("mmrl.callbacks", "lightning.Callback"),
}
"""Parts that a recipe names by import path: the package that holds them, and their base class."""

Row = tuple[str, str]


def show(words: Sequence[str]) -> None:
    """Print all groups, or the options of one."""
    if len(words) > 1:
        raise ConfigError(f"name one group, got {list(words)}")
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    made = Table(box=None, pad_edge=False, show_header=False)
    made.add_column(no_wrap=True, style="bold")
    made.add_column(overflow="fold")
    for row in entries(words[0]) if words else overview():
        made.add_row(*map(Text, row))  # brackets are no markup
    console.print(made, highlight=False)


def overview() -> list[Row]:
    """Every group with its number of options."""
    rows = [(plural(name), f"{len(options)}: {', '.join(options)}") for name, options in groups().items()]
    for name in PARTS:
        made = classes(name)
        rows.append((plural(name), f"{len(made)}: {', '.join(part.__name__ for part in made)}"))
    return sorted(rows)


def entries(word: str) -> list[Row]:
    """(name, meaning) of every option of a group, in singular or plural."""
    folders = groups()
    known = {form: name for name in (*folders, *PARTS) for form in (name, plural(name))}
    if word not in known:
        if new := find_new_name("commands", "list", word):
            raise ConfigError(f"{word} was renamed to {new}")
        near = difflib.get_close_matches(word, known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"no group {word!r}.{hint} Groups are {', '.join(sorted(map(plural, (*folders, *PARTS))))}")
    name = known[word]
    if name in PARTS:
        return [(f"{part.__module__}.{part.__qualname__}", first_line(part)) for part in classes(name)]
    return [(option, meaning(name, option)) for option in folders[name]]


def meaning(group: str, option: str) -> str:
    """A recipe's paper; else the file's own comment, which is about this option; else its class's docstring."""
    text = (CONF / group / f"{option}.yaml").read_text()
    node = yaml.safe_load(text) or {}
    if "paper" in node:
        return _paper(node["paper"]) + _verdict(option)
    comments = []
    for line in text.splitlines():
        if line.startswith("# @package"):
            continue
        if not line.startswith("#"):
            break
        comments.append(line.lstrip("# "))
    if comments:
        return " ".join(comments)
    return _documented(node["_target_"]) if "_target_" in node else ""


def classes(name: str) -> list[type]:
    """The concrete parts of one kind that a package defines, by import path."""
    package, base_path = PARTS[name]
    base = load(base_path)
    root = importlib.import_module(package)
    found = set()
    for module in pkgutil.walk_packages(root.__path__, f"{package}."):
        for value in vars(importlib.import_module(module.name)).values():
            own = inspect.isclass(value) and value.__module__ == module.name
            if own and issubclass(value, base) and value is not base and not inspect.isabstract(value):
                found.add(value)
    return sorted(found, key=lambda part: (part.__module__, part.__qualname__))


def first_line(part: Any) -> str:
    """What a class says about itself, in one line."""
    text = inspect.getdoc(part) if part.__doc__ else None
    return text.split("\n\n")[0].replace("\n", " ") if text else ""


def plural(name: str) -> str:
    """policy -> policies, term -> terms; data and phases stay."""
    if name in ("data", "phases"):
        return name
    return name[:-1] + "ies" if name.endswith("y") else ("curricula" if name == "curriculum" else name + "s")


def _documented(path: str) -> str:
    try:
        return first_line(load(path))
    except ModuleNotFoundError as error:
        if error.name and path.startswith(error.name):
            raise
        return f"needs the package {error.name!r}, which is not installed here; see `mmrl doctor`"


def _verdict(recipe: str) -> str:
    """What the recipe's stored proof says; nothing where there is none."""
    proof = proof_of(recipe)
    return "" if proof is None else f"; {told(proof)}"


def _paper(paper: dict[str, Any]) -> str:
    year = f" ({paper['year']})" if paper.get("year") else ""
    return f"{paper['title']}{year}; {paper.get('source', '')} [{paper.get('status', 'no status')}]"
