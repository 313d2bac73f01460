"""Templates of prompts: "{question}" stands for a column of the row."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from string import Formatter


@lru_cache(maxsize=32)
def parse_template(template: str) -> tuple[tuple[str, str | None], ...]:
    """Parse a template to pairs (text, column after it); {{ and }} stand for braces.

    Attributes, indices, conversions and format specifications of Python's templates are refused: what a row holds is
    written as it is.
    """
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        raise ValueError(f"task.template={template!r}: {error}; write {{column}}, and {{{{ for a brace") from error
    for _, name, spec, conversion in parts:
        if name is not None and (spec or conversion or not name.strip() or any(sign in name for sign in ".[]")):
            raise ValueError(
                f"task.template={template!r}: {{{name}}} must be the name of a column alone, without attributes, "
                "indices or formats; name a column, as in {question}"
            )
    return tuple((text, name) for text, name, _, _ in parts)


def check_template(template: str, shows: bool) -> None:
    """Refuse a template that is none, or that makes all prompts equal.

    Args:
        shows: whether prompts have images or videos of a column, so that one text may ask about all of them.
    """
    if not shows and all(name is None for _, name in parse_template(template)):
        raise ValueError(
            f"task.template={template!r} names no column; write {{question}} where a row's text belongs, or, where one "
            "text asks about the pictures of all rows, name their column in task.images"
        )
    parse_template(template)


def fill_template(template: str, value_of: Callable[[str], str]) -> str:
    """Replace each {column} by its value; braces in values are left as they are."""
    return "".join(text + ("" if name is None else value_of(name)) for text, name in parse_template(template))
