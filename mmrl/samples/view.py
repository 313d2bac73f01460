"""Select and order rows of samples for the terminal and for HTML files."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Group = Mapping[str, Any]

_REPEATED = re.compile(r"(<[^<>\s]+>)\1{3,}")
_JOINERS = "\u200c\u200d"  # they are part of words and of emoji
_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")  # categories without a visible character


def classify_row(row: Mapping[str, Any], score_name: str | None) -> str:
    """Classify an episode: error, failure or success; without a score of success a reward above 0 is one."""
    if row["ended"] == "error":
        return "error"
    scores = row.get("scores", {})
    succeeded = scores[score_name] == 1 if score_name in scores else (row.get("reward") or 0) > 0
    return "success" if succeeded else "failure"


def select_failures(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Keep the episodes that failed or ended in an error, and the groups that have any."""
    out = []
    for group in groups:
        score_name = group.get("score_name")
        failed = [row for row in group["episodes"] if classify_row(row, score_name) != "success"]
        if failed:
            out.append({**group, "episodes": failed})
    return out


SORT_KEYS: dict[str, Callable[[Mapping[str, Any]], float]] = {
    "reward": lambda row: row.get("reward") or 0.0,
    "length": lambda row: float(count_choices(row)),
}
"""Keys that episodes can be sorted by."""


def sort_groups(groups: Sequence[Group], key: str) -> list[dict[str, Any]]:
    """Sort the episodes of each group, and the groups by the mean of theirs; "-reward" puts the largest first."""
    value, descending = SORT_KEYS[key.removeprefix("-")], key.startswith("-")

    def mean(group: Group) -> float:
        return sum(map(value, group["episodes"])) / max(len(group["episodes"]), 1)

    ordered = [{**group, "episodes": sorted(group["episodes"], key=value, reverse=descending)} for group in groups]
    return sorted(ordered, key=mean, reverse=descending)


def count_choices(row: Mapping[str, Any]) -> int:
    """Number of tokens that the policy chose, or of decisions."""
    turns = row.get("turns", [])
    count = sum(sum(turn["chosen"]) + turn.get("omitted", {}).get("tokens", 0) for turn in turns)
    return int(row.get("decisions", count))


def mean_advantage(row: Mapping[str, Any]) -> float | None:
    """Mean of the advantages of the chosen tokens; None without any."""
    values = [
        value
        for turn in row.get("turns", [])
        for value, is_choice in zip(turn.get("advantages", []), turn["chosen"])
        if is_choice and value is not None
    ]
    return sum(values) / len(values) if values else None


def message_text(message: Mapping[str, Any]) -> str:
    """Text of a chat message; an image part becomes [image]."""
    content = message.get("content")
    if isinstance(content, list):
        parts = [part if isinstance(part, Mapping) else {"text": part} for part in content]
        return "".join(str(part["text"]) if "text" in part else f"[{part.get('type', 'part')}]" for part in parts)
    return "" if content is None else str(content)


def count_repeated(text: str) -> str:
    """Write a run of one special token, such as those of an image, once with its count."""
    return _REPEATED.sub(lambda run: f"{run[1]} (x {len(run[0]) // len(run[1])})", text)


def escape_controls(text: str) -> str:
    """Escape control, formatting and private characters, which could move the cursor or reorder a line."""
    return "".join(
        character
        if character in "\n\t" + _JOINERS or unicodedata.category(character) not in _HIDDEN
        else character.encode("unicode_escape").decode()
        for character in text
    )
