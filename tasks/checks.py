"""Refusals that every task makes in the same words."""

from __future__ import annotations

from mmrl.types import Episode, Task

SPLITS = ("train", "held_out")


def check_split(name: str, split: str) -> None:
    """Refuse a split that no task has."""
    if split not in SPLITS:
        raise ValueError(f"task {name!r} has the splits {' and '.join(map(repr, SPLITS))}, not {split!r}")


def check_fraction(name: str, fraction: float) -> None:
    """Refuse a held-out share that leaves one of the splits empty by its value alone."""
    if not 0 < fraction < 1:
        raise ValueError(f"task {name!r}: held_out_fraction must lie between 0 and 1, got {fraction}")


def check_index(task: Task, index: int) -> None:
    """Refuse an index outside 0 <= index < len(task); negative ones too, they are never meant."""
    if not 0 <= index < len(task):
        raise IndexError(f"task {task.name!r} ({task.split}) has {len(task)} problems, asked for index {index}")


def reply_text(episode: Episode) -> str:
    """The text that the policy answered with. A missing or non-text answer is a fault of the set-up, not a score."""
    if not isinstance(episode.output, str):
        raise TypeError(
            f"the answer to {episode.prompt.key!r} is {type(episode.output).__name__}, not text; "
            "this task needs a policy that answers in text"
        )
    return episode.output


def final_line(text: str) -> str:
    """The last line that is not blank, without surrounding space; what comes before it may be reasoning."""
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else ""
