"""Write the results of the check as one page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from scripts.gpu_check.runner import Outcome

SHOWN = 600  # characters of a step's numbers in the table of numbers


def format_page(about: Mapping[str, Any], outcomes: Sequence[Outcome]) -> str:
    """Format a Markdown page: what it ran on, one row for each step, numbers, and the output of what did not pass.

    Args:
        about: date, device, versions and so on.
        outcomes: of the steps so far.
    """
    lines = ["# GPU check", "", *(f"- {name}: {value}" for name, value in about.items()), ""]
    lines += ["| step | result | s | limit, s | what it shows |", "|---|---|---:|---:|---|"]
    for each in outcomes:
        result = f"{each.status}: {each.reason}" if each.reason else each.status
        lines.append(f"| {each.name} | {_cell(result)} | {each.seconds:g} | {each.limit:.0f} | {_cell(each.purpose)} |")
    for each in outcomes:
        if each.numbers:
            lines += ["", f"## {each.name}", ""]
            lines += [f"- `{name}`: `{_short(value)}`" for name, value in each.numbers.items()]
    for each in outcomes:
        if each.status in ("failed", "broken off"):
            lines += ["", f"## Output of {each.name}", "", f"`{' '.join(each.command)}`", "", "```text"]
            lines += [each.tail.strip().replace("```", "'''"), "```"]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
