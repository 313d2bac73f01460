"""Argument checks that all tasks share."""

from __future__ import annotations

from collections.abc import Sequence

from mmrl.core.types import Episode, Task
from mmrl.rewards.extract import remove_thoughts, unify_lines

SPLITS = ("train", "held_out")


def check_split(name: str, split: str) -> None:
    """Raise for an unknown split."""
    if split not in SPLITS:
        raise ValueError(f"task {name!r} has the splits {' and '.join(map(repr, SPLITS))}, not {split!r}")


def check_range(name: str, key: str, values: Sequence[int], least: int, most: int | None = None) -> None:
    """Raise for an argument that is not the fewest and the most of something, from `least` to `most`."""
    limit = float("inf") if most is None else most
    if len(values) != 2 or not least <= values[0] <= values[1] <= limit:
        bounds = f"at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"task {name!r}: {key} must be the fewest and the most, {bounds}, got {list(values)}")


def check_index(task: Task, index: int) -> None:
    """Raise for an index outside 0 <= index < len(task), negative ones included."""
    if not 0 <= index < len(task):
        raise IndexError(f"task {task.name!r} ({task.split}) has {len(task)} problems, asked for index {index}")


def reply_text(episode: Episode) -> str:
    """Text of the policy's answer, behind a tag that its chat template opened, with line feeds as ends of lines.

    Raises if the answer is missing or not text.
    """
    if not isinstance(episode.output, str):
        raise TypeError(
            f"the answer to {episode.prompt.key!r} is {type(episode.output).__name__}, not text; "
            "this task needs a policy that answers in text"
        )
    return unify_lines(episode.info.get("prompt_end", "") + episode.output)


def answer_text(episode: Episode) -> str:
    """Text of the policy's answer without its thoughts, and without blanks around it; "" where a thought has no end."""
    return (remove_thoughts(reply_text(episode)) or "").strip()


def final_line(text: str) -> str:
    """The last line that is not blank, stripped; the lines before it may be reasoning."""
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else ""
