"""Regular expressions and texts with names in braces, as a user gives them."""

from __future__ import annotations

import re


def compile_pattern(key: str, pattern: str, group: str = "") -> re.Pattern[str]:
    """Compile a regular expression of the configuration.

    Args:
        key: of the configuration, for the message.
        pattern: the expression.
        group: what its first group holds; empty where no group is needed.

    Raises:
        ValueError: it is no expression, or has no group where one is needed.
    """
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{key}={pattern!r} is no regular expression: {error}") from error
    if group and not compiled.groups:
        raise ValueError(f"{key}={pattern!r} has no group; put {group} in (...)")
    return compiled


def fill_template(template: str, **values: str) -> str:
    """Replace {name} by its value, once: braces in a value are text, and so is a name without a value."""
    return re.sub(r"\{(\w+)\}", lambda match: values.get(match[1], match[0]), template)
