"""Verify the answer to "Which digit is this?"."""

from __future__ import annotations

import re

from tasks.checks import final_line


def verify(text: str, answer: int) -> dict[str, float]:
    """format: 1 when the final line is one decimal digit and nothing else; exact: 1 when it is the right one."""
    final = final_line(text)
    return {"exact": float(final == str(answer)), "format": float(re.fullmatch("[0-9]", final) is not None)}
