"""Texts that the lists of recipes, methods and settings have in common."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mmrl.config.layers.files import flatten, read_inherited_differences
from mmrl.config.layers.settings import read_paper_setting
from mmrl.config.option_files import read_comment

Row = tuple[str, str]


def cite(paper: Mapping[str, Any]) -> str:
    """arXiv id, year and title; a recipe without a paper has its title alone."""
    arxiv = re.search(r"arXiv:(\d{4}\.\d{4,5})", str(paper.get("source", "")))
    year = f"{paper['year']} " if paper.get("year") else ""
    return f"{arxiv[1] + ' ' if arxiv else year}{paper['title']}"


def describe_paper(paper: Mapping[str, Any], method: str) -> dict[str, Any]:
    """Rows about a paper: what it is, how close the run is to it, and its own numbers with their place in it."""
    return {
        "paper": paper.get("title", "") + (f" ({paper['year']})" if paper.get("year") else ""),
        "source": paper.get("source"),
        "status": paper.get("status"),
        "differs": paper.get("differs"),
        **{f"differs in {base}": text for base, text in read_inherited_differences(method).items()},
        "paper_setting": format_paper_setting(method),
    }


def format_paper_setting(method: str) -> str:
    """The numbers of a method's paper, and in brackets where they stand in it."""
    numbers = read_paper_setting(method)
    place = numbers.pop("place", None)
    return (format_keys(numbers) or "no numbers") + (f" ({place})" if place else "")


def format_keys(keys: Mapping[str, Any]) -> str:
    """Nested keys as arguments of a command line."""
    return " ".join(f"{key}={format_value(value)}" for key, value in flatten(keys))


def format_value(value: Any) -> str:
    """A value as a command line has it: null, true, 1e-06."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list):
        return f"[{','.join(map(format_value, value))}]"
    return str(value)


def describe_file(file: Path) -> str:
    """The path of a file, from the working directory where it is below it."""
    return str(file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file)


def read_first_comment(file: Path) -> str:
    """What the first lines of an option's file say."""
    return read_comment(file.read_text(encoding="utf-8"))


def cite_within(paper: Mapping[str, Any], width: int) -> str:
    """A citation of at most `width` characters; a narrow one has no arXiv id, so that the title can be read."""
    return shorten(cite(paper) if width >= 40 else str(paper["title"]), width)


def wrap(lines: Iterable[str], width: int) -> list[str]:
    """Each line in as many lines as it needs."""
    return [part for line in lines for part in textwrap.wrap(line, width)]


def shorten(text: str, width: int) -> str:
    """A text of at most `width` characters."""
    return text if len(text) <= width else f"{text[: width - 3]}..."


def to_rows(values: Mapping[str, Any]) -> list[Row]:
    """Rows of a table, without those that have no value."""
    return [(key, str(value)) for key, value in values.items() if value]
