"""Print samples in a terminal: prompts, completions coloured by advantage, tool calls, scores."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rich.text import Text

from mmrl.samples.view import classify_row, count_choices, escape_controls, mean_advantage, message_text

KINDS = {"success": "green", "failure": "red", "error": "magenta"}


def truncate(text: str, max_chars: int) -> str:
    """Cut a text in its middle to about `max_chars` characters; 0 keeps it whole."""
    if not max_chars or len(text) <= max_chars:
        return text
    half = max_chars // 2
    return f"{text[:half]} [... {len(text) - 2 * half} characters ...] {text[len(text) - half :]}"


def format_group(group: Mapping[str, Any], max_chars: int = 600) -> Text:
    """Format a group: its prompt and right answer, then every episode."""
    out = Text()
    _append(out, f"group {group['group']}  {group['key']}", "bold")
    if group.get("answer") is not None:
        _append(out, f"  answer {_short(group['answer'], max_chars)}")
    out.append("\n")
    for message in group["messages"]:
        _append(out, f"{message.get('role', 'message')}: ", "cyan")
        _append(out, truncate(message_text(message), max_chars) + "\n")
    for row in group["episodes"]:
        out.append(_format_episode(row, group.get("score_name"), max_chars))
    rest = group.get("group_size", 0) - len(group["episodes"])
    if rest > 0:
        out.append(f"  {rest} more episodes\n", "dim")
    return out


def _format_episode(row: Mapping[str, Any], score_name: str | None, max_chars: int) -> Text:
    out = Text()
    out.append(f"  [{row['sample_index']}] ", "bold")
    out.append(f"reward {_number(row.get('reward'))}", KINDS[classify_row(row, score_name)])
    advantage = mean_advantage(row)
    if advantage is not None:
        out.append(f"  advantage {advantage:+.3g}", _colour(advantage))
    for name, value in row.get("scores", {}).items():
        _append(out, f"  {name} {_number(value)}")
    kind = "decisions" if "decisions" in row else "tokens"
    _append(out, f"  {count_choices(row)} {kind}  {row['ended']}", "dim")
    for name in ("source", "role", "instruction", "extracted", "error"):
        if name in row:
            _append(out, f"  {name} {truncate(str(row[name]), max_chars)}")
    out.append("\n")
    for turn in row.get("turns", []):
        if "context" in turn:
            _append_text(out, truncate(turn["context"], max_chars), "dim")
        _append_turn(out, turn, row.get("output", ""), max_chars)
    for call in row.get("calls", []):
        _append(out, f"      {call['name']}({_short(call['arguments'], max_chars)}) {call['outcome']}: ", "cyan")
        _append(out, truncate(str(call["result"]), max_chars).strip() + "\n")
    return out


def _append_turn(out: Text, turn: Mapping[str, Any], output: str, max_chars: int) -> None:
    """Append a turn's tokens in the colours of their advantages; forced tokens are dim."""
    texts = turn["tokens"]
    if not texts:
        return _append_text(out, truncate(output, max_chars), "")
    styles = [
        "dim" if not is_choice else _colour(value)
        for is_choice, value in zip(turn["chosen"], turn.get("advantages", [None] * len(texts)))
    ]
    indices = list(range(len(texts)))
    if max_chars and sum(map(len, texts)) > max_chars:
        indices = _keep_ends(texts, max_chars)
    out.append("      ")
    last = -1
    for i in indices:
        if i > last + 1:
            out.append(f" [... {i - last - 1} tokens ...] ", "dim")
        if i == turn.get("omitted", {}).get("after"):
            out.append(f" [... {turn['omitted']['tokens']} tokens ...] ", "dim")
        _append(out, texts[i].replace("\n", "\n      "), styles[i])
        last = i
    out.append("\n")
    return None


def _keep_ends(texts: list[str], max_chars: int) -> list[int]:
    """Positions of the first and last tokens with about `max_chars` characters together."""
    ends = []
    for order in (range(len(texts)), range(len(texts) - 1, -1, -1)):
        used = 0
        for i in order:
            used += len(texts[i])
            if used > max_chars // 2:
                break
            ends.append(i)
    return sorted(set(ends))


def _append_text(out: Text, text: str, style: str) -> None:
    _append(out, "      " + text.replace("\n", "\n      ") + "\n", style)


def _append(out: Text, text: str, style: str = "") -> None:
    out.append(escape_controls(text), style)


def _colour(advantage: float | None) -> str:
    if not advantage:
        return ""
    strong = "bold " if abs(advantage) >= 1 else ""
    return f"{strong}green" if advantage > 0 else f"{strong}red"


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"


def _short(value: Any, max_chars: int) -> str:
    return truncate(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), max_chars)
