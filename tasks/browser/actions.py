"""Actions on a page in words: one action, spelled exactly as `describe_actions` says."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass

from tasks.browser.page import KEYS

ACTIONS = ("click", "click_element", "type", "press", "scroll", "wait")
MAX_TEXT = 200  # characters that one action types

_NUMBER = r"(0|[1-9][0-9]{0,3})"
_PATTERNS = {
    "click": re.compile(rf"click {_NUMBER} {_NUMBER}"),
    "click_element": re.compile(rf"click #{_NUMBER}"),
    "type": re.compile(r'type (".*")'),
    "press": re.compile(rf"press ({'|'.join(KEYS)})"),
    "scroll": re.compile(rf"scroll {_NUMBER} {_NUMBER} (up|down)"),
    "wait": re.compile(r"wait"),
}


@dataclass(frozen=True)
class BrowserAction:
    """An action: its kind, the cell that it is aimed at, the number of an element, or a text, a key, a direction."""

    kind: str
    column: int = 0
    row: int = 0
    element: int = 0
    text: str = ""


def parse_action(line: str, allowed: Collection[str], columns: int, rows: int) -> BrowserAction | None:
    """Parse an action; None if it is none of the allowed ones or aims outside the grid."""
    for kind in allowed:
        match = _PATTERNS[kind].fullmatch(line)
        if match is None:
            continue
        if kind in ("click", "scroll"):
            column, row = int(match[1]), int(match[2])
            inside = column < columns and row < rows
            return BrowserAction(kind, column, row, text="".join(match.groups()[2:])) if inside else None
        if kind == "click_element":
            return BrowserAction(kind, element=int(match[1]))
        if kind == "type":
            text = _parse_text(match[1])
            return None if text is None else BrowserAction(kind, text=text)
        return BrowserAction(kind, text="".join(match.groups()))
    return None


def _parse_text(quoted: str) -> str | None:
    """Read a JSON string of printable characters."""
    try:
        text = json.loads(quoted)
    except ValueError:
        return None
    return text if text.isprintable() and len(text) <= MAX_TEXT else None


def describe_actions(allowed: Collection[str], columns: int, rows: int) -> str:
    """Describe the allowed actions to a policy."""
    place = f"X from 0 to {columns - 1}, Y from 0 to {rows - 1}"
    forms = {
        "click": f"click X Y ({place})",
        "click_element": "click #N (N is the number of an element)",
        "type": 'type "TEXT"',
        "press": f"press KEY ({', '.join(KEYS)})",
        "scroll": f"scroll X Y down, scroll X Y up ({place})",
        "wait": "wait",
    }
    return "; ".join(forms[kind] for kind in allowed)
