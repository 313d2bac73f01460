"""Search and replace blocks: parse them, apply them to a file, and compare the change with another one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from mmrl.rewards.measures import sequence_similarity

SEARCH, MIDDLE, REPLACE = "<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE"
_BLOCK = re.compile(rf"{SEARCH}\n(.*?)\n{MIDDLE}\n(.*?\n)?{REPLACE}(?:\n|$)", re.DOTALL)
LONGEST = 4_000
"""Characters of an answer that is parsed."""


def write_block(old: str, new: str) -> str:
    """Write the block that replaces the lines of `old` by those of `new`; "" for new deletes them."""
    return "\n".join([SEARCH, old, MIDDLE, *([new] if new else []), REPLACE])


def parse_blocks(text: str) -> list[tuple[str, str]] | None:
    """Parse an answer that is blocks alone, as (old, new); None for other text."""
    text, blocks, at = text.strip(), [], 0
    if len(text) > LONGEST:
        return None
    while at < len(text):
        match = _BLOCK.match(text, at)
        if match is None or any(mark in match[1] + (match[2] or "") for mark in (SEARCH, MIDDLE, REPLACE)):
            return None
        blocks.append((match[1], (match[2] or "").removesuffix("\n")))
        at = match.end()
    return blocks or None


def apply_blocks(file: str, blocks: Sequence[tuple[str, str]]) -> str | None:
    """Replace whole lines of a file, one block after the other; None if one does not fit.

    The old lines have to stand in the file exactly once, and the new ones have to differ.
    """
    text = f"\n{file}\n"
    for old, new in blocks:
        old_lines = f"\n{old}\n"
        places = re.findall(f"(?={re.escape(old_lines)})", text)  # equal lines that touch share a line feed
        if old == new or len(places) != 1:
            return None
        text = text.replace(old_lines, f"\n{new}\n" if new else "\n")
    return text[1:-1]


def write_patch(before: str, after: str) -> str:
    """Unified diff of two versions of a file, with 3 lines around a change and without headers."""
    lines = list(difflib.unified_diff(before.split("\n"), after.split("\n"), lineterm="", n=3))[2:]
    return "\n".join(
        line for line in lines if not line.startswith("@@")
    )  # a file's lines have a sign or a space before


def compare_changes(before: str, after: str, right: str) -> float:
    """Similarity of the change from `before` to `after` to the right one: that of their patches; 0 for no change."""
    return sequence_similarity(write_patch(before, after), write_patch(before, right)) if after != before else 0.0
