"""A log of four conversations, as a user has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def talk(*texts: str, **rewards: Any) -> dict[str, Any]:
    """A conversation whose turns are the user's and the assistant's by turns."""
    messages = [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]
    return {"messages": messages, **rewards}


TALKS = [
    talk("3+4=", "8", "no", "7", rewards=[-0.5, 1]),
    talk("2+2=", "4", reward=1),
    talk("5+1=", "5", reward=0),
    talk("1+1=", "2", reward=1.0),
]


def write(path: Path, rows: list[Any] | None = None) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in (TALKS if rows is None else rows)))
    return path
