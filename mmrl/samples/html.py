"""Samples as HTML that loads nothing: data as JSON in the page, drawn by one script through text nodes alone."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from mmrl.samples.view import classify_row, count_choices, escape_controls, mean_advantage, message_text

MAX_BYTES = 2_000_000  # of the data in one page
_HERE = Path(__file__).parent
SCRIPT = Markup((_HERE / "samples.js").read_text())  # a file of this package
STYLE = Markup((_HERE / "samples.css").read_text())
_FACTS = ("extracted", "error", "source", "role", "instruction")


def content_policy(*scripts: str) -> str:
    """Content-Security-Policy that allows these inline scripts, data URIs and nothing from outside."""
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{each}'" for each in hashes)
    return f"default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'; script-src {allowed}"


def render_section(
    sides: Mapping[str, Sequence[Mapping[str, Any]]], start: str = "all", max_bytes: int = MAX_BYTES
) -> Markup:
    """Render groups of one or two checkpoints side by side; `SCRIPT` has to be in the page after it.

    Args:
        sides: groups by title, matched by their key.
        start: what is shown at first: all, failures, successes or errors.
        max_bytes: of the data; groups beyond it are left out and counted.
    """
    *_, last = sides.values()
    lookups = [{(group["key"], group["group"]): group for group in groups} for groups in sides.values()]
    rows, used = [], 0
    for group in last:
        row = _group_data(group, [side.get((group["key"], group["group"])) for side in lookups])
        used += len(json.dumps(row))
        if used > max_bytes and rows:
            break
        rows.append(row)
    data = {"titles": list(sides), "start": start, "groups": rows, "left": len(last) - len(rows)}
    # a JSON string may hold these characters escaped; unescaped they could end the element
    text = json.dumps(data).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return Markup('<div data-samples><script type="application/json">{}</script></div>').format(Markup(text))


def load_page(folder: Path) -> Template:
    """Load page.html of a folder, which extends document.html; every value is escaped."""
    loader = FileSystemLoader([folder, _HERE])
    pages = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return pages.get_template("page.html")


def render_page(title: str, text: str, groups: Sequence[Mapping[str, Any]], start: str = "all") -> str:
    """Render one HTML file with these groups."""
    return load_page(_HERE).render(
        title=title,
        text=text,
        section=render_section({"": groups}, start),
        samples_style=STYLE,
        scripts=[SCRIPT],
        policy=content_policy(SCRIPT),
    )


def _group_data(group: Mapping[str, Any], sides: Sequence[Mapping[str, Any] | None]) -> dict[str, Any]:
    return {
        "number": group["group"],
        "key": _text(group["key"]),
        "messages": [
            {"role": _text(message.get("role", "message")), "text": _text(message_text(message))}
            for message in group["messages"]
        ],
        "images": group["images"],
        "answer": None if group.get("answer") is None else _text(group["answer"]),
        "sides": [
            [] if side is None else [_episode_data(row, side.get("score_name")) for row in side["episodes"]]
            for side in sides
        ],
        "sizes": [0 if side is None else side.get("group_size", len(side["episodes"])) for side in sides],
    }


def _episode_data(row: Mapping[str, Any], score_name: str | None) -> dict[str, Any]:
    data: dict[str, Any] = {
        "kind": classify_row(row, score_name),
        "reward": row.get("reward"),
        "advantage": mean_advantage(row),
        "scores": {_text(name): value for name, value in row.get("scores", {}).items()},
        "ended": _text(row["ended"]),
        "length": count_choices(row),
        "unit": "decisions" if "decisions" in row else "tokens",
        "facts": {name: _text(row[name]) for name in _FACTS if row.get(name) is not None},
        "turns": [_turn_data(turn) for turn in row.get("turns", []) if turn["tokens"]],
        "calls": [{name: _text(value) for name, value in call.items()} for call in row.get("calls", [])],
    }
    return data | ({"output": _text(row["output"])} if "output" in row else {})


def _turn_data(turn: Mapping[str, Any]) -> dict[str, Any]:
    """Columns of a turn, a number where all chosen tokens have the same one; without numbers, tokens are joined."""
    tokens, is_choice = list(map(_text, turn["tokens"])), turn["chosen"]
    data: dict[str, Any] = {name: turn[name] for name in ("omitted",) if name in turn}
    if "context" in turn:
        data["context"] = _text(turn["context"])
    for name in ("advantages", "logprobs", "ratios"):
        values = {value for value, mine in zip(turn.get(name, []), is_choice) if mine}
        if values - {0.0, None} or (name == "advantages" and values):
            data[name] = values.pop() if len(values) == 1 else turn[name]
    if not {"advantages", "logprobs", "ratios", "omitted"} & set(data):
        tokens, is_choice = _join_runs(tokens, is_choice)
    return data | {"tokens": tokens} | ({} if all(is_choice) else {"chosen": is_choice})


def _join_runs(tokens: Sequence[str], is_choice: Sequence[int]) -> tuple[list[str], list[int]]:
    """Join neighbouring tokens that are alike chosen or forced."""
    texts: list[str] = []
    flags: list[int] = []
    for text, mine in zip(tokens, is_choice):
        if flags and flags[-1] == mine:
            texts[-1] += text
        else:
            texts.append(text)
            flags.append(mine)
    return texts, flags


def _text(value: Any) -> str:
    return escape_controls(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
